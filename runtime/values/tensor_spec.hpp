// SPDX-License-Identifier: Apache-2.0
// Describes tensors that a program expects: their type, and their shape, of which lengths may be unknown. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/values/tensor.hpp"

namespace lockstep {

// Holds a type, a shape and a name.
class TensorSpec {
 public:
  static constexpr std::int64_t unknown = -1;  // Stands for a length that is not known.

  // Describes tensors of any shape.
  explicit TensorSpec(DataType type, std::string name = {}) : type_(type), name_(std::move(name)) {}
  // Describes tensors with these lengths, of which some may be `unknown`. Throws Error usage for other negative ones,
  // and for too many axes.
  TensorSpec(std::vector<std::int64_t> lengths, DataType type, std::string name = {});
  // Describes a tensor as it is.
  template <class T>
  explicit TensorSpec(const Tensor<T>& tensor, std::string name = {})
      : TensorSpec(tensor.shape().lengths(), data_type_of<T>, std::move(name)) {}

  // Return the type, the name (empty for none), and the lengths, which are missing if any shape fits.
  DataType type() const { return type_; }
  const std::string& name() const { return name_; }
  const std::optional<std::vector<std::int64_t>>& lengths() const { return lengths_; }
  // True if all lengths are known.
  bool is_fully_defined() const;
  // True if a tensor can fit both: the types are equal, and so are lengths that both know. Names do not count.
  bool is_compatible_with(const TensorSpec& other) const;
  template <class T>
  bool is_compatible_with(const Tensor<T>& tensor) const {
    return is_compatible_with(TensorSpec(tensor));
  }
  // Throws Error usage unless is_compatible_with(given). `subject` names what was given: "batch 3".
  void check(const TensorSpec& given, std::string_view subject) const;

  std::string to_string() const;  // Returns "TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)".
  bool operator==(const TensorSpec&) const = default;

 private:
  std::optional<std::vector<std::int64_t>> lengths_;
  DataType type_;
  std::string name_;
};

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

}  // namespace lockstep
