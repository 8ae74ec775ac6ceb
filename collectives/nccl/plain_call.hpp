// SPDX-License-Identifier: Apache-2.0
// Begins calls that NCCL has, or that are only messages. It also tells the scratch memory that any call needs.
#pragma once

#include "collectives/nccl/nccl_call.hpp"

namespace lockstep::nccl {

// Returns the bytes of scratch memory for the call.
std::size_t scratch_bytes(const NcclEndpoint& endpoint, const NcclCall& call);
// Queues a call that is not composed, within a group of NCCL.
void begin_plain(const NcclEndpoint& endpoint, const NcclCall& call, std::byte* scratch);

}  // namespace lockstep::nccl
