// SPDX-License-Identifier: Apache-2.0
// Turns typed calls into CallRequests: one function per collective and arrangement of buffers. The forms of a call
// (blocking, async, planned, batched) differ only in their use of the CallRequest.
#pragma once

#include "collectives/communicator/call_request.hpp"

namespace lockstep::detail::requests {

// Holds numbers of elements, or offsets in elements: one for each member.
using Counts = std::span<const std::size_t>;

// Returns a request for elements of R's type. A request is large, so its parts are written where they stay.
template <class R>
CallRequest plain(Collective collective, const BufferView& input, const BufferView& output, int root, Origin origin) {
  using T = Element<R>;
  return {.collective = collective,
          .type = data_type_of<T>,
          .element_bytes = sizeof(T),
          .root = root,
          .input = input,
          .output = output,
          .origin = origin};
}

// Returns a request with separate input and output, which must have the same element type.
template <class In, class Out>
CallRequest move(Collective collective, const In& in, Out&& out, int root, Origin origin) {
  check_same_element<In, Out>();
  return plain<In>(collective, input_of(in), output_of(out), root, origin);
}

// Returns a request as move() does, with the reduction `op`.
template <class In, class Out, class Op>
CallRequest reduce(Collective collective, const In& in, Out&& out, const Op& op, int root, Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  set_reduction<Element<In>>(request.reduction, op);
  return request;
}

// Returns a request with one buffer that is both input and output.
template <class R>
CallRequest move_in_place(Collective collective, R&& data, int root, Origin origin) {
  const BufferView both = output_of(data);
  return plain<R>(collective, both, both, root, origin);
}

// Returns a request as move_in_place() does, with the reduction `op`.
template <class R, class Op>
CallRequest reduce_in_place(Collective collective, R&& data, const Op& op, int root, Origin origin) {
  CallRequest request = move_in_place(collective, data, root, origin);
  set_reduction<Element<R>>(request.reduction, op);
  return request;
}

// Returns the block of member `rank` if `all` is cut evenly among `size` members. A block of a strided buffer has whole
// runs; if runs would be cut, the function sets request.wrong instead of throwing.
inline BufferView block_of(CallRequest& request, const BufferView& all, int rank, int size) {
  const std::size_t each = all.count / static_cast<std::size_t>(size);
  auto* const begin = static_cast<std::byte*>(all.data);
  const auto before = static_cast<std::size_t>(rank);
  if (all.contiguous()) return {begin + before * each * request.element_bytes, each};
  const std::size_t run = all.count < all.blocks ? 1 : all.count / all.blocks;
  const std::size_t runs = each / run;
  if (each % run != 0) request.error = "in place, but the runs of the strided buffer cannot be shared out whole";
  return {begin + before * runs * all.stride * request.element_bytes, each, runs == 0 ? 1 : runs, all.stride};
}

// Returns an all_gather in place: the member's own block of `data` is the input, all of `data` the output.
template <class R>
CallRequest gather_in_place(R&& data, int rank, int size, Origin origin) {
  CallRequest request = move_in_place(Collective::all_gather, data, 0, origin);
  request.input = block_of(request, request.output, rank, size);
  return request;
}

// Returns a reduce_scatter in place: all of `data` is the input, the member's own block the output.
template <class R, class Op>
CallRequest scatter_in_place(R&& data, const Op& op, int rank, int size, Origin origin) {
  CallRequest request = reduce_in_place(Collective::reduce_scatter, data, op, 0, origin);
  request.output = block_of(request, request.input, rank, size);
  return request;
}

// Returns a broadcast in place. Only the root has an input; all members have `data` as output.
template <class R>
CallRequest broadcast(R&& data, int root, int rank, Origin origin) {
  CallRequest request = move_in_place(Collective::broadcast, data, root, origin);
  if (rank != root) request.input = {};
  return request;
}

// Returns a reduce in place. All members have `data` as input; only the root has an output, which replaces its data.
template <class R, class Op>
CallRequest reduce_to_root(R&& data, const Op& op, int root, int rank, Origin origin) {
  CallRequest request = reduce_in_place(Collective::reduce, data, op, root, origin);
  if (rank != root) request.output = {};
  return request;
}

// Returns a request in which each member takes blocks of unequal size; `collective` is gather_v or all_gather_v.
template <class In, class Out>
CallRequest gather_v(Collective collective, const In& in, Out&& out, Counts receive_counts, Counts offsets, int root,
                     Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  request.receive_counts = receive_counts;
  request.receive_offsets = offsets;
  return request;
}

// Returns a request in which each member gives blocks of unequal size.
template <class In, class Out>
CallRequest scatter_v(Collective collective, const In& in, Out&& out, Counts send_counts, Counts offsets, int root,
                      Origin origin) {
  CallRequest request = move(collective, in, out, root, origin);
  request.send_counts = send_counts;
  request.send_offsets = offsets;
  return request;
}

// Returns a reduce_scatter_v. Its input blocks lie one after the other.
template <class In, class Out, class Op>
CallRequest reduce_scatter_v(const In& in, Out&& out, Counts send_counts, const Op& op, Origin origin) {
  CallRequest request = scatter_v(Collective::reduce_scatter_v, in, out, send_counts, {}, 0, origin);
  set_reduction<Element<In>>(request.reduction, op);
  return request;
}

// Returns an all_to_all_v. Empty offsets mean that blocks lie one after the other.
template <class In, class Out>
CallRequest all_to_all_v(const In& in, Counts send_counts, Out&& out, Counts receive_counts, Counts send_offsets,
                         Counts receive_offsets, Origin origin) {
  CallRequest request = scatter_v(Collective::all_to_all_v, in, out, send_counts, send_offsets, 0, origin);
  request.receive_counts = receive_counts;
  request.receive_offsets = receive_offsets;
  return request;
}

}  // namespace lockstep::detail::requests
