// SPDX-License-Identifier: Apache-2.0
// Holds the rules that the .cpp files of NcclCommunicator share: the path that a call takes.
#pragma once

#include "collectives/nccl/nccl_communicator.hpp"

namespace lockstep::nccl {

// Aligns blocks of scratch memory, in bytes, for vector loads and for NCCL.
inline constexpr std::size_t alignment = 256;

inline std::size_t round_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Returns the bytes of this rank's input.
inline std::size_t input_bytes(const Spec& spec, int rank) {
  std::size_t count = spec.count;
  if (spec.collective == Collective::all_gather_v || spec.collective == Collective::gather_v)
    count = spec.takes.count(rank);
  if (cuts_input(spec.collective)) count = spec.gives.extent();
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
inline bool is_exchange(Collective collective) {
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
