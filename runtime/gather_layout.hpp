// SPDX-License-Identifier: Apache-2.0
// Concatenates the tensors of all replicas along an axis, along which their lengths may differ.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep::detail {

// Holds a shape as a fixed number of integers, so that members can exchange it.
using EncodedShape = std::array<std::int64_t, 1 + TensorShape::most_axes>;
EncodedShape encode_shape(const TensorShape& shape);

// Returns the shapes of all replicas in order, from their encoded shapes.
std::vector<TensorShape> decode_shapes(std::span<const std::int64_t> words);

// Tells how the replicas' tensors form one tensor.
class GatherLayout {
 public:
  // Takes the shape of every replica, in order. Throws Error usage, the same at all replicas, if they do not fit
  // together.
  GatherLayout(std::vector<TensorShape> shapes, int axis);
  // Returns the number of elements of each replica.
  const std::vector<std::size_t>& counts() const { return counts_; }
  // Returns the number of elements of all replicas.
  std::size_t count() const { return whole_.count(); }
  // Returns the whole tensor from the replicas' elements, one replica after the other.
  template <class T>
  Tensor<T> assemble(const Tensor<T>& parts) const {
    if (whole_.outside(axis_) == 1) return Tensor<T>(whole_, parts.span());
    std::vector<Tensor<T>> each;
    std::size_t at = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      each.push_back(Tensor<T>(shapes_[i], parts.span().subspan(at, counts_[i])));
      at += counts_[i];
    }
    return join(each, axis_);
  }

 private:
  int axis_;
  std::vector<TensorShape> shapes_;
  std::vector<std::size_t> counts_;
  TensorShape whole_;
};

// Gathers the tensors of all members. Blocks, and makes several calls of `member`.
template <class T>
Tensor<T> gather_at(Communicator& member, const Tensor<T>& mine, int axis, Origin origin) {
  const EncodedShape words = encode_shape(mine.shape());
  std::vector<std::int64_t> all(words.size() * static_cast<std::size_t>(member.size()));
  member.all_gather(words, all, origin);
  const GatherLayout layout(decode_shapes(all), axis);
  Tensor<T> parts(TensorShape({static_cast<std::int64_t>(layout.count())}));
  member.all_gather_v(mine, parts, layout.counts(), {}, origin);
  return layout.assemble(parts);
}

}  // namespace lockstep::detail
