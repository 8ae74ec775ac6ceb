// SPDX-License-Identifier: Apache-2.0
// Chooses a way for data on GPUs that members can reach: launches and copies there, or staging by the host. The
// shorter way depends on the machine and the size. All members choose by the same measured costs.
#pragma once

#include "collectives/gpu/costs.hpp"
#include "collectives/plan.hpp"

namespace lockstep::node {

struct CallContext;
struct PeerBuffers;

// Members ask each other where their buffers lie if the largest block has this many bytes. The question costs one
// step, even if all buffers are on the host. For smaller blocks they ask only now and then, until they find a buffer
// on a GPU.
inline constexpr std::size_t min_gpu_query_bytes = 4096;
// The second one applies after several questions in a row have found no buffer on a GPU.
inline constexpr std::size_t min_rare_gpu_query_bytes = 512U << 10U;

// True if the collective takes at most as long on the GPUs as by staging on the host, for `members` ranks. The host's
// own reduction of staged data is left out. It is short beside the copies, and would only favour the GPU. `is_packed`:
// the data are several tensors, so that on the GPUs one more launch packs them and another unpacks them.
bool is_faster_on_gpus(const Spec& spec, int members, const gpu::DeviceCosts& costs, bool is_packed = false);
// True if that holds for a call with announced buffers. All members get the same answer.
bool is_faster_on_gpus(const CallContext& call, const PeerBuffers& peers);

}  // namespace lockstep::node
