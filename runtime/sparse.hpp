// SPDX-License-Identifier: Apache-2.0
// Combines the slices of all replicas. They are concatenated, or added up as whole tensors if that moves fewer bytes.
// Included by runtime/replica_context.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/replica_context.hpp"

namespace lockstep {
namespace detail {

// Holds the shape of the whole tensor and the number of rows. Each replica sends it first.
using EncodedRows = std::array<std::int64_t, std::tuple_size_v<EncodedShape> + 1>;
template <class T>
EncodedRows rows_of(const IndexedSlices<T>& slices) {
  EncodedRows words{};
  const EncodedShape shape = encode_shape(slices.dense_shape());
  for (std::size_t i = 0; i < shape.size(); ++i) words[i] = shape[i];
  words.back() = static_cast<std::int64_t>(slices.indices().size());
  return words;
}
// Returns the number of rows of all replicas, from the numbers of every member. Throws Error usage, the same at all,
// for slices of different tensors.
std::int64_t rows_of_all(std::span<const std::int64_t> words);

// True if a sum of whole tensors moves fewer bytes. A gather moves the rows of all to every replica; a sum moves the
// whole tensor twice, up and down. A mean of integers or 16-bit floats divides each value first, so it is gathered.
template <class T>
bool goes_dense(ReduceOp op, int replicas, std::int64_t rows_of_all, std::int64_t rows_of_whole) {
  const bool is_same = op == ReduceOp::sum || (is_fractional_number<T> && !is_small_float<T>);
  return is_same && replicas > 1 && rows_of_all - rows_of_whole > rows_of_whole;
}

// Returns a byte for each row of the tensor: 1 if there is a slice of it, else 0.
template <class T>
std::vector<std::uint8_t> touched(const IndexedSlices<T>& slices) {
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(slices.dense_shape()[0]));
  for (const std::int64_t index : slices.indices()) rows[static_cast<std::size_t>(index)] = 1;
  return rows;
}

// Returns the rows of `whole` that are touched in any replica, each once, in their order.
template <class T>
IndexedSlices<T> slices_of(const Tensor<T>& whole, const std::vector<std::uint8_t>& touched) {
  std::vector<std::int64_t> indices;
  for (std::size_t row = 0; row < touched.size(); ++row) {
    if (touched[row] != 0) indices.push_back(static_cast<std::int64_t>(row));
  }
  Tensor<T> values(whole.shape().with(0, static_cast<std::int64_t>(indices.size())));
  const std::size_t size = whole.shape().inside(0);
  for (std::size_t i = 0; i < indices.size(); ++i)
    copy_elements(whole.data() + static_cast<std::size_t>(indices[i]) * size, size, values.data() + i * size);
  return {std::move(values), std::move(indices), whole.shape()};
}

// Exchanges the numbers of rows. All replicas call it.
template <class T>
std::int64_t rows_of_all(ReplicaContext& replica, const IndexedSlices<T>& slices, const CommunicationOptions& options,
                         Origin origin) {
  const EncodedRows mine = rows_of(slices);
  const Tensor<std::int64_t> words = replica.all_gather(row(std::vector(mine.begin(), mine.end())), 0, options, origin);
  return rows_of_all(words.span());
}

// Returns the slices of all replicas from their joined rows, which come in the order of replicas. A mean divides each
// by the number of replicas.
template <class T>
IndexedSlices<T> joined_slices(Tensor<T> values, const Tensor<std::int64_t>& indices, const TensorShape& whole,
                               ReduceOp op, int replicas) {
  if (op == ReduceOp::avg) {
    for (T& value : values) value = divided(value, static_cast<std::size_t>(replicas));
  }
  return {std::move(values), {indices.begin(), indices.end()}, whole};
}

// Gathers the slices of all replicas in their order. For a mean, each is divided by the number of replicas.
template <class T>
IndexedSlices<T> gather_slices(ReplicaContext& replica, const IndexedSlices<T>& slices, ReduceOp op,
                               const CommunicationOptions& options, Origin origin) {
  Tensor<T> values = replica.all_gather(slices.values(), 0, options, origin);
  const Tensor<std::int64_t> indices = replica.all_gather(row(slices.indices()), 0, options, origin);
  return joined_slices(std::move(values), indices, slices.dense_shape(), op, replica.num_replicas_in_sync());
}

}  // namespace detail

template <class T, class Op>
requires(Op::op == ReduceOp::sum || Op::op == ReduceOp::avg) IndexedSlices<T> ReplicaContext::all_reduce(
    const IndexedSlices<T>& slices, Op op, const CommunicationOptions& options, Origin origin) {
  const detail::ScopedTimeout scoped_timeout(communicator(), options.checked().timeout);
  const std::int64_t rows = detail::rows_of_all(*this, slices, options, origin);
  if (!detail::goes_dense<T>(Op::op, size_, rows, slices.dense_shape()[0]))
    return detail::gather_slices(*this, slices, Op::op, options, origin);
  std::vector<std::uint8_t> touched = detail::touched(slices);
  Tensor<T> whole = slices.dense();
  // Uses the communicator even if the program combines its values by operations of its own.
  next(origin, {.tag = tag_with(options)})->all_reduce(touched, max, origin);
  all_reduce(whole, op, options, origin);
  return detail::slices_of(whole, touched);
}

}  // namespace lockstep
