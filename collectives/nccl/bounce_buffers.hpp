// SPDX-License-Identifier: Apache-2.0
// Leads the data of a call through scratch memory in the same stream, if NCCL must not work in the call's buffers. All
// members must give NCCL the same parts of memory that it knows. A factor is applied on the way.
#pragma once

#include "collectives/nccl/nccl_call.hpp"
#include "collectives/nccl/registered_memory.hpp"

namespace lockstep::nccl {

// Is the scratch memory of one call. The endpoint and the call outlive this object.
class BounceBuffers {
 public:
  BounceBuffers(const NcclEndpoint& endpoint, const RegisteredMemory& registered, const NcclCall& given);
  // Returns the bytes of scratch memory that it needs; 0: the call can work in its own buffers.
  std::size_t bytes() const { return input_ + output_; }
  // Copies or scales the input to scratch memory at `at`, and points the changed call there.
  void copy_in(NcclCall& changed, std::byte* at) const;
  // Copies the output of the changed call to that of the given one.
  void copy_back(const NcclCall& changed) const;

 private:
  const NcclEndpoint& endpoint_;
  const NcclCall& given_;
  std::size_t input_ = 0;   // bytes
  std::size_t output_ = 0;  // bytes
};

}  // namespace lockstep::nccl
