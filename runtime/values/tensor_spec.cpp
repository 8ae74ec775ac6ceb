// SPDX-License-Identifier: Apache-2.0
// Compares tensors with the ones that a program expects.
#include "runtime/values/tensor_spec.hpp"

#include <algorithm>
#include <ostream>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

TensorSpec::TensorSpec(std::vector<std::int64_t> lengths, DataType type, std::string name)
    : lengths_(std::move(lengths)), type_(type), name_(std::move(name)) {
  std::vector<std::int64_t> known = *lengths_;
  std::erase(known, unknown);
  const TensorShape checked(std::move(known));
  if (lengths_->size() > TensorShape::most_axes)
    throw Error(Code::usage, text("a TensorSpec of ", lengths_->size(), " axes"),
                text("there can be ", TensorShape::most_axes));
}

bool TensorSpec::is_fully_defined() const {
  return lengths_ && std::find(lengths_->begin(), lengths_->end(), unknown) == lengths_->end();
}

bool TensorSpec::is_compatible_with(const TensorSpec& other) const {
  if (type_ != other.type_) return false;
  if (!lengths_ || !other.lengths_) return true;
  return std::equal(lengths_->begin(), lengths_->end(), other.lengths_->begin(), other.lengths_->end(),
                    [](std::int64_t a, std::int64_t b) { return a == b || a == unknown || b == unknown; });
}

void TensorSpec::check(const TensorSpec& given, std::string_view subject) const {
  if (is_compatible_with(given)) return;
  throw Error(Code::usage, text(subject, " is ", given.to_string(), ", which does not fit ", to_string()),
              type_ == given.type_ ? "give a tensor of that shape" : "give a tensor of that type: cast<float>(tensor)");
}

std::string TensorSpec::to_string() const {
  std::string shape = "<unknown>";
  if (lengths_) {
    shape = "(";
    for (const std::int64_t length : *lengths_)
      shape += text(shape.size() > 1 ? ", " : "", length == unknown ? "None" : text(length));
    shape += lengths_->size() == 1 ? ",)" : ")";
  }
  return text("TensorSpec(shape=", shape, ", dtype=tf.", detail::numpy_name(type_),
              ", name=", name_.empty() ? "None" : text('\'', printable(name_), '\''), ')');
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) { return out << spec.to_string(); }

}  // namespace lockstep
