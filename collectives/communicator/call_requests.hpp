// SPDX-License-Identifier: Apache-2.0
// From typed calls to CallRequests: one function per collective and way to hand in buffers. The forms of a call
// (blocking, async, planned, batched) differ only in what they do with the CallRequest.
#pragma once

#include <algorithm>

#include "collectives/communicator/call_request.hpp"

namespace lockstep::detail::requests {

using Counts = std::span<const std::size_t>;

template <class R>
CallRequest plain(Collective collective, int root, Origin origin) {
  using T = Element<R>;
  return {
      .collective = collective, .type = data_type_of<T>, .element_bytes = sizeof(T), .root = root, .origin = origin};
}

// Input and output apart.
template <class In, class Out>
CallRequest move(Collective collective, const In& in, Out&& out, int root, Origin origin) {
  check_same_element<In, Out>();
  CallRequest request = plain<In>(collective, root, origin);
  request.input = input_of(in);
  request.output = output_of(out);
  return request;
}

template <class In, class Out, class Op>
CallRequest reduce(Collective collective, const In& in, Out&& out, const Op& op, int root, Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  request.reduction = reduction_of<Element<In>>(op);
  return request;
}

// One buffer that is both.
template <class R>
CallRequest move_in_place(Collective collective, R&& data, int root, Origin origin) {
  CallRequest request = plain<R>(collective, root, origin);
  request.output = output_of(data);
  request.input = request.output;
  return request;
}

template <class R, class Op>
CallRequest reduce_in_place(Collective collective, R&& data, const Op& op, int root, Origin origin) {
  CallRequest request = move_in_place(collective, data, root, origin);
  request.reduction = reduction_of<Element<R>>(op);
  return request;
}

// The part of a buffer that is member `rank`'s when it is cut evenly among `size`: whole runs of a strided one.
inline BufferView block_of(CallRequest& request, const BufferView& all, int rank, int size) {
  const std::size_t each = all.count / static_cast<std::size_t>(size);
  auto* const begin = static_cast<std::byte*>(all.data);
  const auto before = static_cast<std::size_t>(rank);
  if (all.contiguous()) return {begin + before * each * request.element_bytes, each};
  const std::size_t run = std::max<std::size_t>(all.count / all.blocks, 1);
  const std::size_t runs = each / run;
  if (each % run != 0) request.wrong = "in place, but the runs of the strided buffer cannot be shared out whole";
  return {begin + before * runs * all.stride * request.element_bytes, each, std::max<std::size_t>(runs, 1), all.stride};
}

// Own block in place among all: of all_gather it is the input, of reduce_scatter the output.
template <class R>
CallRequest gather_in_place(R&& data, int rank, int size, Origin origin) {
  CallRequest request = move_in_place(Collective::all_gather, data, 0, origin);
  request.input = block_of(request, request.output, rank, size);
  return request;
}

template <class R, class Op>
CallRequest scatter_in_place(R&& data, const Op& op, int rank, int size, Origin origin) {
  CallRequest request = reduce_in_place(Collective::reduce_scatter, data, op, 0, origin);
  request.output = block_of(request, request.input, rank, size);
  return request;
}

// The root gives what it has; everybody ends with it.
template <class R>
CallRequest broadcast(R&& data, int root, int rank, Origin origin) {
  CallRequest request = move_in_place(Collective::broadcast, data, root, origin);
  if (rank != root) request.input = {};
  return request;
}

// Everybody's data; only the root's is replaced by the result.
template <class R, class Op>
CallRequest reduce_to_root(R&& data, const Op& op, int root, int rank, Origin origin) {
  CallRequest request = reduce_in_place(Collective::reduce, data, op, root, origin);
  if (rank != root) request.output = {};
  return request;
}

template <class In, class Out>
CallRequest gather_v(Collective collective, const In& in, Out&& out, Counts takes, Counts offsets, int root,
                     Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  request.takes = takes;
  request.takes_offsets = offsets;
  return request;
}

template <class In, class Out>
CallRequest scatter_v(Collective collective, const In& in, Out&& out, Counts gives, Counts offsets, int root,
                      Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  request.gives = gives;
  request.gives_offsets = offsets;
  return request;
}

template <class In, class Out, class Op>
CallRequest reduce_scatter_v(const In& in, Out&& out, Counts gives, const Op& op, Origin origin) {
  CallRequest request = scatter_v(Collective::reduce_scatter_v, in, out, gives, {}, 0, origin);
  request.reduction = reduction_of<Element<In>>(op);
  return request;
}

template <class In, class Out>
CallRequest all_to_all_v(const In& in, Counts gives, Out&& out, Counts takes, Counts gives_offsets,
                         Counts takes_offsets, Origin origin) {
  CallRequest request = scatter_v(Collective::all_to_all_v, in, out, gives, gives_offsets, 0, origin);
  request.takes = takes;
  request.takes_offsets = takes_offsets;
  return request;
}

}  // namespace lockstep::detail::requests
