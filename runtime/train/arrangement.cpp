// SPDX-License-Identifier: Apache-2.0
// Has the ops that move elements without computing: reshape, transpose, concat, slice and gather. Forward they take
// tensors of every type.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

using Steps = std::vector<std::size_t>;

// Returns the distance in elements from one element to the next along each axis.
Steps steps_of(const TensorShape& shape) {
  Steps steps(static_cast<std::size_t>(shape.rank()));
  for (int axis = 0; axis < shape.rank(); ++axis) steps[static_cast<std::size_t>(axis)] = shape.inside(axis);
  return steps;
}

// Copies a box of elements between two arrangements in memory.
class BoxCopy {
 public:
  BoxCopy(const std::vector<std::int64_t>& lengths, Steps from_steps, Steps to_steps)
      : lengths_(lengths.begin(), lengths.end()), from_steps_(std::move(from_steps)), to_steps_(std::move(to_steps)) {
    // Makes one axis of two that are adjacent in both arrangements.
    while (lengths_.size() > 1 && is_adjacent(from_steps_) && is_adjacent(to_steps_)) {
      const std::size_t length = lengths_.back();
      lengths_.pop_back();
      lengths_.back() *= length;
      for (Steps* each : {&from_steps_, &to_steps_}) {
        (*each)[each->size() - 2] = each->back();
        each->pop_back();
      }
    }
  }
  void operator()(DataType type, const void* from, void* to) const {
    const auto* const source = static_cast<const std::byte*>(from);
    auto* const target = static_cast<std::byte*>(to);
    switch (size_of(type)) {
      case 1:
        return copy<1>(0, source, target);
      case 2:
        return copy<2>(0, source, target);
      case 4:
        return copy<4>(0, source, target);
      case 8:
        return copy<8>(0, source, target);
      default:
        return copy<16>(0, source, target);
    }
  }

 private:
  bool is_adjacent(const Steps& steps) const { return steps[steps.size() - 2] == steps.back() * lengths_.back(); }
  template <std::size_t bytes>
  void copy(std::size_t axis, const std::byte* from, std::byte* to) const {
    if (axis == lengths_.size()) {
      std::memcpy(to, from, bytes);
      return;
    }
    const std::size_t length = lengths_[axis];
    const std::size_t from_step = from_steps_[axis] * bytes;
    const std::size_t to_step = to_steps_[axis] * bytes;
    if (axis + 1 < lengths_.size()) {
      for (std::size_t i = 0; i < length; ++i) copy<bytes>(axis + 1, from + i * from_step, to + i * to_step);
    } else if (from_step == bytes && to_step == bytes) {
      if (length > 0) std::memcpy(to, from, length * bytes);
    } else {
      for (std::size_t i = 0; i < length; ++i) std::memcpy(to + i * to_step, from + i * from_step, bytes);
    }
  }

  Steps lengths_;
  Steps from_steps_;
  Steps to_steps_;
};

void* at(const AnyTensor& tensor, std::size_t element) {
  return static_cast<std::byte*>(tensor.view().data) + element * size_of(tensor.type());
}
void fill_with_zeros(const AnyTensor& tensor) {
  if (tensor.size() > 0) std::memset(tensor.view().data, 0, tensor.view().bytes());
}

// The integers are the lengths.
TensorShape reshape_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  std::vector<std::int64_t> lengths = attributes.integers;
  const TensorShape& shape = inputs[0].shape();
  const auto refuse = [&](std::string_view remedy) {
    std::string wanted;
    for (const std::int64_t each : attributes.integers) wanted += text(wanted.empty() ? "" : ", ", each);
    refuse_inputs("reshape", text("a tensor of shape ", shape.to_string(), " cannot have the lengths (", wanted, ")"),
                  remedy);
  };
  std::optional<std::size_t> guessed;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0) continue;
    if (lengths[i] != -1 || guessed) refuse("give lengths from 0, and -1 for one of them at most");
    guessed = i;
    lengths[i] = 1;
  }
  const std::size_t known = TensorShape(lengths).count();
  if (guessed && known > 0) lengths[*guessed] = static_cast<std::int64_t>(shape.count() / known);
  TensorShape result(std::move(lengths));
  if (result.count() != shape.count() || (guessed && known == 0))
    refuse(text("give lengths whose product is ", shape.count()));
  return result;
}
void reshape_backward(BackwardCall& call) { call.give(0, call.gradient().reshaped(call.input(0).shape())); }
constexpr Op reshape_op = {"reshape", reshape_shape, nullptr, reshape_backward};

// The integers are the input's axes in the order of the result.
TensorShape transpose_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t axis : attributes.integers) lengths.push_back(inputs[0].shape()[static_cast<int>(axis)]);
  return TensorShape(std::move(lengths));
}
// Copies x to the permuted y, or back.
void permute(const OpAttributes& attributes, const AnyTensor& x, const AnyTensor& y, bool is_backward) {
  const Steps input_steps = steps_of(x.shape());
  Steps steps;
  for (const std::int64_t axis : attributes.integers) steps.push_back(input_steps[static_cast<std::size_t>(axis)]);
  if (is_backward)
    BoxCopy(y.shape().lengths(), steps_of(y.shape()), steps)(x.type(), y.view().data, x.view().data);
  else
    BoxCopy(y.shape().lengths(), steps, steps_of(y.shape()))(x.type(), x.view().data, y.view().data);
}
void transpose_forward(OpCall& call) { permute(call.attributes, call.inputs[0], call.output, false); }
void transpose_backward(BackwardCall& call) { permute(call.attributes(), call.into(0), call.gradient(), true); }
constexpr Op transpose_op = {"transpose", transpose_shape, transpose_forward, transpose_backward};

// The integer is the axis.
TensorShape concat_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  const int axis = static_cast<int>(attributes.integers[0]);
  const TensorShape& first = inputs[0].shape();
  if (axis < -first.rank() || axis >= first.rank())
    refuse_inputs("concat", text("axis ", axis, " of tensors of shape ", first.to_string()),
                  "give tensors with that axis");
  std::int64_t length = 0;
  for (const AnyTensor& each : inputs) {
    if (each.type() != inputs[0].type())
      refuse_inputs("concat", text("tensors of ", to_string(inputs[0].type()), " and ", to_string(each.type())),
                    "convert one of them: cast<float>(tensor)");
    if (each.shape().rank() != first.rank() || each.shape().with(axis, 0) != first.with(axis, 0))
      refuse_inputs("concat", text("tensors of the shapes ", first.to_string(), " and ", each.shape().to_string()),
                    text("give shapes that differ along axis ", axis, " only"));
    length += each.shape()[axis];
  }
  return first.with(axis, length);
}
// Calls `copy(part, box, where the part begins in the whole)` for each part of the whole.
template <class F>
void for_each_part(int axis, const TensorShape& whole, std::span<const AnyTensor> parts, F&& copy) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    copy(i, parts[i].shape().lengths(), begin);
    begin += static_cast<std::size_t>(parts[i].shape()[axis]) * whole.inside(axis);
  }
}
void concat_forward(OpCall& call) {
  const TensorShape& whole = call.output.shape();
  for_each_part(static_cast<int>(call.attributes.integers[0]), whole, call.inputs,
                [&](std::size_t i, const std::vector<std::int64_t>& box, std::size_t begin) {
                  const AnyTensor& part = call.inputs[i];
                  BoxCopy(box, steps_of(part.shape()), steps_of(whole))(part.type(), part.view().data,
                                                                        at(call.output, begin));
                });
}
void concat_backward(BackwardCall& call) {
  std::vector<AnyTensor> parts;
  for (std::size_t i = 0; i < call.inputs(); ++i) parts.push_back(call.input(i));
  const TensorShape& whole = call.output().shape();
  for_each_part(static_cast<int>(call.attributes().integers[0]), whole, parts,
                [&](std::size_t i, const std::vector<std::int64_t>& box, std::size_t begin) {
                  if (!call.wants(i)) return;
                  const AnyTensor& part = call.into(i);
                  BoxCopy(box, steps_of(whole), steps_of(part.shape()))(part.type(), at(call.gradient(), begin),
                                                                        part.view().data);
                });
}
constexpr Op concat_op = {"concat", concat_shape, concat_forward, concat_backward};

// The integers are the first element of each axis, and then the lengths.
TensorShape slice_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  const TensorShape& shape = inputs[0].shape();
  const std::size_t rank = attributes.integers.size() / 2;
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t first = attributes.integers[i];
    const std::int64_t whole = shape[static_cast<int>(i)];
    const std::int64_t length = attributes.integers[rank + i] == -1 ? whole - first : attributes.integers[rank + i];
    if (first < 0 || length < 0 || first > whole || length > whole - first)
      refuse_inputs("slice", text(length, " elements from ", first, " on along axis ", i, ", which has ", whole),
                    "give a box inside of the tensor; a length of -1 means all that are left");
    lengths.push_back(length);
  }
  return TensorShape(std::move(lengths));
}
std::size_t first_element(const OpAttributes& attributes, const TensorShape& shape) {
  std::size_t first = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    first += static_cast<std::size_t>(attributes.integers[static_cast<std::size_t>(axis)]) * shape.inside(axis);
  return first;
}
void slice_forward(OpCall& call) {
  const AnyTensor& x = call.inputs[0];
  if (call.output.size() == 0) return;
  BoxCopy(call.output.shape().lengths(), steps_of(x.shape()), steps_of(call.output.shape()))(
      x.type(), at(x, first_element(call.attributes, x.shape())), call.output.view().data);
}
void slice_backward(BackwardCall& call) {
  const AnyTensor& dx = call.into(0);
  const AnyTensor& dy = call.gradient();
  fill_with_zeros(dx);
  if (dy.size() == 0) return;
  BoxCopy(dy.shape().lengths(), steps_of(dy.shape()), steps_of(dx.shape()))(
      dy.type(), dy.view().data, at(dx, first_element(call.attributes(), dx.shape())));
}
constexpr Op slice_op = {"slice", slice_shape, slice_forward, slice_backward};

// Returns indices of i32 or i64.
std::vector<std::int64_t> indices_in(const AnyTensor& tensor) {
  if (tensor.type() == DataType::i32) {
    const std::span<const std::int32_t> all = tensor.span<std::int32_t>();
    return {all.begin(), all.end()};
  }
  const std::span<const std::int64_t> all = tensor.span<std::int64_t>();
  return {all.begin(), all.end()};
}
TensorShape gather_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  const TensorShape& table = inputs[0].shape();
  const AnyTensor& indices = inputs[1];
  if (table.rank() == 0) refuse_inputs("gather", "the table is a scalar", "give a tensor with rows");
  if (indices.type() != DataType::i32 && indices.type() != DataType::i64)
    refuse_inputs("gather", text("indices of ", to_string(indices.type())), "give indices of i32 or i64");
  const std::vector<std::int64_t> all = indices_in(indices);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0 || all[i] >= table[0])
      refuse_inputs("gather", text("index ", i, " is ", all[i], ", and the table has ", table[0], " rows"),
                    text("give indices from 0 to ", table[0] - 1));
  }
  std::vector<std::int64_t> lengths = indices.shape().lengths();
  lengths.insert(lengths.end(), table.lengths().begin() + 1, table.lengths().end());
  return TensorShape(std::move(lengths));
}
void gather_forward(OpCall& call) {
  const AnyTensor& table = call.inputs[0];
  const std::size_t row = table.shape().inside(0);
  std::size_t to = 0;
  for (const std::int64_t index : indices_in(call.inputs[1])) {
    if (row > 0)
      std::memcpy(at(call.output, to), at(table, static_cast<std::size_t>(index) * row), row * size_of(table.type()));
    to += row;
  }
}
void gather_backward(BackwardCall& call) {
  if (!call.wants(0)) return;
  const AnyTensor& table = call.input(0);
  std::vector<std::int64_t> indices = indices_in(call.input(1));
  const TensorShape rows = table.shape().with(0, static_cast<std::int64_t>(indices.size()));
  if (table.type() == DataType::f32)
    return call.give(
        0, IndexedSlices<float>(call.gradient().reshaped(rows).to<float>(), std::move(indices), table.shape()));
  fill_with_zeros(call.into(0));
  with_float_type("gather", table.type(), [&]<class T>(T /*type*/) {
    T* const to = call.into(0).span<T>().data();
    const T* from = call.gradient().span<T>().data();
    const std::size_t row = table.shape().inside(0);
    for (const std::int64_t index : indices) {
      for (std::size_t j = 0; j < row; ++j) to[static_cast<std::size_t>(index) * row + j] += *from++;
    }
  });
}
constexpr Op gather_op = {"gather", gather_shape, gather_forward, gather_backward};

}  // namespace

TapeTensor reshape(const TapeTensor& x, std::vector<std::int64_t> lengths) {
  return apply(reshape_op, {x}, {.integers = std::move(lengths)});
}

TapeTensor transpose(const TapeTensor& x, std::vector<int> axes) {
  const int rank = x.shape().rank();
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.rbegin(), order.rend(), 0);
  if (!axes.empty()) {
    order.assign(axes.begin(), axes.end());
    for (std::int64_t& each : order) each += each < 0 ? rank : 0;
    std::vector<std::int64_t> sorted = order;
    std::ranges::sort(sorted);
    bool is_permutation = axes.size() == static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < sorted.size(); ++i)
      is_permutation = is_permutation && sorted[i] == static_cast<std::int64_t>(i);
    if (!is_permutation)
      refuse_inputs(
          "transpose",
          text(axes.size(), " axes that are no permutation of the ", rank, " of shape ", x.shape().to_string()),
          "name each axis once");
  }
  return apply(transpose_op, {x}, {.integers = std::move(order)});
}

TapeTensor concat(std::span<const TapeTensor> parts, int axis) {
  if (parts.empty()) refuse_inputs("concat", "no tensors", "give one at least");
  return apply(concat_op, parts, {.integers = {axis}});
}

TapeTensor slice(const TapeTensor& x, std::vector<std::int64_t> first, std::vector<std::int64_t> lengths) {
  const auto rank = static_cast<std::size_t>(x.shape().rank());
  if (first.size() != rank || lengths.size() != rank)
    refuse_inputs(
        "slice",
        text(first.size(), " positions and ", lengths.size(), " lengths for a tensor of shape ", x.shape().to_string()),
        text("give ", rank, " of each"));
  first.insert(first.end(), lengths.begin(), lengths.end());
  return apply(slice_op, {x}, {.integers = std::move(first)});
}

TapeTensor gather(const TapeTensor& table, const TapeTensor& indices) { return apply(gather_op, {table, indices}); }

}  // namespace lockstep::train
