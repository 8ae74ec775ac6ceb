// SPDX-License-Identifier: Apache-2.0
// Data on GPUs goes two ways among members that reach each other's: by launches and copies there, or by way of the
// host. Which one is the shorter depends on the machine and the size, so it is reckoned from what was measured; from
// the same numbers by all members.
#pragma once

#include "collectives/gpu/costs.hpp"
#include "collectives/plan.hpp"

namespace lockstep::node {

// To tell each other where data lies costs members a step, also where all have it on the host: below, they would feel
// that, and ask only now and then, until they find some on a GPU.
inline constexpr std::size_t gpu_asked_from = 4096;
inline constexpr std::size_t gpu_asked_rarely_from = 512U << 10U;  // where there was none lately

// Whether so many members are done there sooner than by staging. What the host itself does with what is staged is left
// out: it is little beside the copies, and would only speak for the GPU. `is_packed`: of tensors that become one, there
// or in pinned memory, each by a launch in and one out.
bool pays_on_gpus(const Spec& spec, int members, const gpu::DeviceCosts& costs, bool is_packed = false);

}  // namespace lockstep::node
