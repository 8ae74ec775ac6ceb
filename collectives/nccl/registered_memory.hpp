// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL knows of, which the members of an NCCL communicator have taken together. What its owner drops stays
// until all members have dropped theirs, because they forget it together, or until the NCCL communicator is gone; and
// it stays until what the GPU was given before in its default stream is done with it. cudaFree sees to that by waiting
// for the whole GPU, NCCL does not: here an event does it, so that nobody else's work is waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/nccl/library.hpp"

namespace lockstep::nccl {

class RegisteredMemory : public std::enable_shared_from_this<RegisteredMemory> {
 public:
  RegisteredMemory(NcclInterface& library, int device) : library_(library), device_(device) {}

  // Where something is in it; memory has the same number on all members.
  struct RegisteredAddress {
    std::uint64_t number = 0;  // 0: nowhere
    std::uint64_t offset = 0;
    bool operator==(const RegisteredAddress&) const = default;
  };

  // Dropped with its last owner; from now on it is freed here.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes);
  // NCCL's word for what was added last.
  void know(std::unique_ptr<Registration> registration);
  RegisteredAddress find(const void* address) const;
  // What this member has dropped, and what there is at all, in order.
  std::vector<std::uint64_t> dropped();
  std::vector<std::uint64_t> all() const;
  // The word for it; nothing where it has none any more.
  std::unique_ptr<Registration> take(std::uint64_t number);
  // Of what is dropped, and forgotten by NCCL: as soon as it can be, which is looked at here and when it is asked what
  // was dropped.
  void free(std::uint64_t number);
  // The NCCL communicator is gone, and with it all that NCCL knew. Waits for what the GPU does with what was dropped.
  void close();

 private:
  struct RegisteredBlock {
    std::uint64_t number;
    std::byte* first;
    std::size_t bytes;
    std::unique_ptr<Registration> registration;
    bool is_dropped = false;
    std::shared_ptr<gpu::StreamMark> before =
        {};  // what the GPU was given before it was dropped; nothing: nobody knows
  };
  void drop(std::uint64_t number);
  std::shared_ptr<gpu::StreamMark> mark() const noexcept;
  static bool is_idle(const RegisteredBlock& memory) noexcept;
  void free_idle();
  void free_when_idle(const RegisteredBlock& memory) noexcept;

  NcclInterface& library_;
  int device_;
  mutable std::mutex mutex_;              // owners are dropped by any thread
  std::vector<RegisteredBlock> all_;      // by number
  std::vector<RegisteredBlock> leaving_;  // that NCCL has forgotten
  std::uint64_t last_ = 0;
  bool is_closed_ = false;
};

}  // namespace lockstep::nccl
