// SPDX-License-Identifier: Apache-2.0
// Encodes shapes for an exchange, and checks that the replicas' tensors fit together.
#include "runtime/gather_layout.hpp"

#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse(std::size_t replica, const TensorShape& shape, const TensorShape& first, int axis) {
  throw Error(Code::usage,
              text("gather along axis ", axis, ": replica ", replica, " has the shape ", shape.to_string(),
                   ", replica 0 ", first.to_string()),
              "shapes may differ along the axis of the gather alone");
}

}  // namespace

EncodedShape encode_shape(const TensorShape& shape) {
  EncodedShape words{};
  words[0] = shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) words[static_cast<std::size_t>(axis) + 1] = shape[axis];
  return words;
}

std::vector<TensorShape> decode_shapes(std::span<const std::int64_t> words) {
  constexpr std::size_t each = std::tuple_size_v<EncodedShape>;
  std::vector<TensorShape> shapes;
  for (std::size_t at = 0; at < words.size(); at += each) {
    const auto mine = words.subspan(at, each);
    if (mine[0] < 0 || mine[0] >= static_cast<std::int64_t>(each))
      throw Error(Code::bad_message, text("a shape of ", mine[0], " dimensions from another replica"),
                  "run the same program in all processes");
    shapes.emplace_back(std::vector<std::int64_t>(mine.begin() + 1, mine.begin() + 1 + mine[0]));
  }
  return shapes;
}

GatherLayout::GatherLayout(std::vector<TensorShape> shapes, int axis) : axis_(axis), shapes_(std::move(shapes)) {
  std::int64_t length = 0;
  for (std::size_t replica = 0; replica < shapes_.size(); ++replica) {
    const TensorShape& shape = shapes_[replica];
    const TensorShape& first = shapes_.front();
    if (shape.rank() == 0)
      throw Error(Code::usage, text("gather of a scalar, at replica ", replica),
                  "give it an axis: a tensor of shape (1,)");
    if (shape.rank() != first.rank() || shape.with(axis, 0) != first.with(axis, 0)) refuse(replica, shape, first, axis);
    length += shape[axis];
    counts_.push_back(shape.count());
  }
  whole_ = shapes_.front().with(axis, length);
}

}  // namespace lockstep::detail
