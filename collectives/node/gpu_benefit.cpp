// SPDX-License-Identifier: Apache-2.0
// Computes both ways' times from the bytes that all members move.
#include "collectives/node/gpu_benefit.hpp"

#include <algorithm>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/peer_buffers.hpp"

namespace lockstep::node {
namespace {

// Counts the data that all members move, and the copies that follow each other.
struct MovedBytes {
  std::uint64_t in = 0;      // bytes
  std::uint64_t out = 0;     // bytes
  std::uint64_t copies = 0;  // by the member that makes most
};

MovedBytes moved(const Spec& spec, std::uint64_t members) {
  const std::uint64_t all_blocks = spec.collective == Collective::reduce_scatter_v ? spec.input_blocks.total()
                                   : spec.collective == Collective::all_gather_v   ? spec.output_blocks.total()
                                                                                   : spec.count * members;
  const std::uint64_t block = all_blocks / members * spec.element_bytes;
  const std::uint64_t one_each = members * block;
  const std::uint64_t all_each = members * one_each;
  switch (spec.collective) {
    case Collective::reduce:
      return {one_each, block, 0};
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return {all_each, one_each, 0};
    case Collective::broadcast:
      return {block, one_each - block, 1};
    case Collective::scatter:
      return {one_each, one_each, 1};
    case Collective::gather:
      return {one_each, one_each, members};
    case Collective::all_gather:
    case Collective::all_gather_v:
      return {one_each, all_each, members};
    case Collective::all_to_all:
      return {all_each, all_each, members};
    default:
      return {one_each, one_each, 0};
  }
}

}  // namespace

bool is_faster_on_gpus(const Spec& spec, int members, const gpu::DeviceCosts& costs, bool is_packed) {
  const MovedBytes all = moved(spec, static_cast<std::uint64_t>(members));
  const std::uint64_t packing = is_packed ? costs.launch.of(2 * all.in) + costs.launch.of(2 * all.out) : 0;
  const std::uint64_t there = reduces(spec.collective) ? costs.launch.of(all.in + all.out)
                                                       : all.copies * costs.copy.ns + costs.copy.bytes_alone(all.out);
  return packing + there <= costs.down.of(all.in) + costs.up.of(all.out);
}

// All members see the same buffers, so all decide alike. Threads of one process share a backend, which measures once.
// Processes agreed on measured costs when they proved that they can map.
bool is_faster_on_gpus(const CallContext& call, const PeerBuffers& peers) {
  int device = gpu::MemoryLocation::host;
  for (int member = 0; member < call.members(); ++member) {
    const BufferAnnouncement theirs = peers.announced_by(member);
    for (const BufferAddress* each : {&theirs.input, &theirs.output}) {
      const int its = static_cast<int>(each->device);
      if (its >= 0 && (device < 0 || its < device)) device = its;
    }
  }
  if (device < 0) return true;
  const Gpus* const gpus = call.room->gpus().shared();
  return is_faster_on_gpus(call.spec(), call.members(),
                           gpus != nullptr ? gpus->agreement().costs() : gpu::backend()->costs(device));
}

}  // namespace lockstep::node
