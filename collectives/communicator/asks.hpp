// SPDX-License-Identifier: Apache-2.0
// From typed calls to Asks: one function per collective and way to hand in buffers. The forms of a call (blocking,
// async, planned, batched) differ only in what they do with the Ask.
#pragma once

#include <algorithm>

#include "collectives/communicator/ask.hpp"

namespace lockstep::detail::asks {

using Counts = std::span<const std::size_t>;

template <class R>
Ask plain(Collective collective, int root, Origin origin) {
  using T = Element<R>;
  return {
      .collective = collective, .type = data_type_of<T>, .element_bytes = sizeof(T), .root = root, .origin = origin};
}

// Input and output apart.
template <class In, class Out>
Ask move(Collective collective, const In& in, Out&& out, int root, Origin origin) {
  check_same_element<In, Out>();
  Ask ask = plain<In>(collective, root, origin);
  ask.input = input_of(in);
  ask.output = output_of(out);
  return ask;
}

template <class In, class Out, class Op>
Ask reduce(Collective collective, const In& in, Out&& out, const Op& op, int root, Origin origin) {
  Ask ask = move(collective, in, out, root, origin);
  ask.reduction = reduction_of<Element<In>>(op);
  return ask;
}

// One buffer that is both.
template <class R>
Ask move_in_place(Collective collective, R&& data, int root, Origin origin) {
  Ask ask = plain<R>(collective, root, origin);
  ask.output = output_of(data);
  ask.input = ask.output;
  return ask;
}

template <class R, class Op>
Ask reduce_in_place(Collective collective, R&& data, const Op& op, int root, Origin origin) {
  Ask ask = move_in_place(collective, data, root, origin);
  ask.reduction = reduction_of<Element<R>>(op);
  return ask;
}

// The part of a buffer that is member `rank`'s when it is cut evenly among `size`: whole runs of a strided one.
inline Data block_of(Ask& ask, const Data& all, int rank, int size) {
  const std::size_t each = all.count / static_cast<std::size_t>(size);
  auto* const begin = static_cast<std::byte*>(all.data);
  const auto before = static_cast<std::size_t>(rank);
  if (all.contiguous()) return {begin + before * each * ask.element_bytes, each};
  const std::size_t run = std::max<std::size_t>(all.count / all.blocks, 1);
  const std::size_t runs = each / run;
  if (each % run != 0) ask.wrong = "in place, but the runs of the strided buffer cannot be shared out whole";
  return {begin + before * runs * all.stride * ask.element_bytes, each, std::max<std::size_t>(runs, 1), all.stride};
}

// Own block in place among all: of all_gather it is the input, of reduce_scatter the output.
template <class R>
Ask gather_in_place(R&& data, int rank, int size, Origin origin) {
  Ask ask = move_in_place(Collective::all_gather, data, 0, origin);
  ask.input = block_of(ask, ask.output, rank, size);
  return ask;
}

template <class R, class Op>
Ask scatter_in_place(R&& data, const Op& op, int rank, int size, Origin origin) {
  Ask ask = reduce_in_place(Collective::reduce_scatter, data, op, 0, origin);
  ask.output = block_of(ask, ask.input, rank, size);
  return ask;
}

// The root gives what it has; everybody ends with it.
template <class R>
Ask broadcast(R&& data, int root, int rank, Origin origin) {
  Ask ask = move_in_place(Collective::broadcast, data, root, origin);
  if (rank != root) ask.input = {};
  return ask;
}

// Everybody's data; only the root's is replaced by the result.
template <class R, class Op>
Ask reduce_to_root(R&& data, const Op& op, int root, int rank, Origin origin) {
  Ask ask = reduce_in_place(Collective::reduce, data, op, root, origin);
  if (rank != root) ask.output = {};
  return ask;
}

template <class In, class Out>
Ask gather_v(Collective collective, const In& in, Out&& out, Counts takes, Counts offsets, int root, Origin origin) {
  Ask ask = move(collective, in, out, root, origin);
  ask.takes = takes;
  ask.takes_offsets = offsets;
  return ask;
}

template <class In, class Out>
Ask scatter_v(Collective collective, const In& in, Out&& out, Counts gives, Counts offsets, int root, Origin origin) {
  Ask ask = move(collective, in, out, root, origin);
  ask.gives = gives;
  ask.gives_offsets = offsets;
  return ask;
}

template <class In, class Out, class Op>
Ask reduce_scatter_v(const In& in, Out&& out, Counts gives, const Op& op, Origin origin) {
  Ask ask = scatter_v(Collective::reduce_scatter_v, in, out, gives, {}, 0, origin);
  ask.reduction = reduction_of<Element<In>>(op);
  return ask;
}

template <class In, class Out>
Ask all_to_all_v(const In& in, Counts gives, Out&& out, Counts takes, Counts gives_offsets, Counts takes_offsets,
                 Origin origin) {
  Ask ask = scatter_v(Collective::all_to_all_v, in, out, gives, gives_offsets, 0, origin);
  ask.takes = takes;
  ask.takes_offsets = takes_offsets;
  return ask;
}

}  // namespace lockstep::detail::asks
