// SPDX-License-Identifier: Apache-2.0
// Describes one collective for NCCL, the endpoint that it is given to, and the rules that choose its path.
#pragma once

#include <cstddef>

#include "collectives/gpu/user_launch.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/plan.hpp"

namespace lockstep::nccl {

// Describes one collective. Its buffers are in the memory of the NCCL communicator's GPU.
struct NcclCall {
  Spec spec;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;         // this member's factor, for premul_sum
  gpu::UserLaunch own = {};  // launches the user's own reduction
};

// True if an NCCL communicator of this size can do the call. All members get the same answer.
bool can_do(const Spec& spec, int members);

// Return the bytes that one member sends to or receives from another in a pure exchange, as this member sees it. NCCL
// hangs if the two see different counts, so members compare them first.
std::size_t bytes_to(const Spec& spec, int me, int to);
std::size_t bytes_from(const Spec& spec, int me, int from);

// Queues one member's messages and copies in the stream of a call. It owns nothing.
struct NcclEndpoint {
  NcclInterface& library;
  NcclComm* member;
  int size;
  int rank;
  int device;
  gpu::Stream stream;

  void send(const std::byte* from, std::size_t bytes, int to) const { library.send(member, from, bytes, to, stream); }
  void receive(std::byte* to, std::size_t bytes, int from) const { library.receive(member, to, bytes, from, stream); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
    if (to != from && bytes > 0) gpu::backend()->begin_copy(device, to, from, bytes, stream);
  }
};

// Aligns blocks of scratch memory, in bytes, for vector loads and for NCCL.
inline constexpr std::size_t alignment = 256;

inline std::size_t round_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Returns the bytes of this rank's input.
inline std::size_t input_bytes(const Spec& spec, int rank) {
  std::size_t count = spec.count;
  if (spec.collective == Collective::all_gather_v || spec.collective == Collective::gather_v)
    count = spec.output_blocks.count(rank);
  if (cuts_input(spec.collective)) count = spec.input_blocks.extent();
  return count * spec.element_bytes;
}

// True if NCCL has this reduction and its result is right.
inline bool is_reduced_by_nccl(const Spec& spec) {
  const bool has_it = spec.collective == Collective::all_reduce || spec.collective == Collective::reduce ||
                      spec.collective == Collective::reduce_scatter;
  return has_it && spec.order == Order::fast && reduces(spec.op, spec.type);
}

inline bool is_scan(const Spec& spec) {
  return spec.collective == Collective::scan || spec.collective == Collective::exscan;
}

// True if Lockstep combines the parts by its own kernels.
inline bool is_composed(const Spec& spec) { return lockstep::reduces(spec.collective) && !is_reduced_by_nccl(spec); }

// True if ranks only send blocks to each other, as the specification cuts them.
inline bool is_sent_by_messages(Collective collective) {
  switch (collective) {
    case Collective::all_to_all:
    case Collective::all_gather_v:
    case Collective::gather:
    case Collective::scatter:
    case Collective::gather_v:
    case Collective::scatter_v:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep::nccl
