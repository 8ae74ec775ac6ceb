// SPDX-License-Identifier: Apache-2.0
// Keeps the memory that the members of an NCCL communicator registered together. A block that its owner drops stays
// until all members have dropped theirs and forget it together, or until the communicator is gone.
// The block also stays until the GPU has done the work that its default stream held at the drop. cudaFree would wait
// for the whole GPU, and NCCL would not wait at all. So an event marks that work, and nobody waits for the work of
// others.
//
// An NcclCommunicator owns it together with the blocks that programs still hold.
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

// Numbers blocks in the order of their registration, so a block has the same number on all members. Any thread may call
// it; it must be owned by a shared_ptr.
class RegisteredMemory : public std::enable_shared_from_this<RegisteredMemory> {
 public:
  RegisteredMemory(NcclInterface& library, int device) : library_(library), device_(device) {}

  // Says where an address is in registered memory.
  struct RegisteredAddress {
    std::uint64_t number = 0;  // 0: not registered
    std::uint64_t offset = 0;
    bool operator==(const RegisteredAddress&) const = default;
  };

  // Takes ownership of a block. The result drops the block with its last owner.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes);
  // Stores NCCL's handle for the block added last.
  void know(std::unique_ptr<Registration> registration);
  RegisteredAddress find(const void* address) const;
  // Return the numbers of the dropped blocks, and of all blocks, in ascending order.
  std::vector<std::uint64_t> dropped();
  std::vector<std::uint64_t> all() const;
  // Moves NCCL's handle out of a block; null if it has none.
  std::unique_ptr<Registration> take(std::uint64_t number);
  // Frees a dropped block that NCCL has forgotten, as soon as the GPU allows. This call and dropped() check for that.
  void free(std::uint64_t number);
  // Tells that the NCCL communicator is gone, with all registrations. Waits for the GPU's work on dropped blocks, and
  // frees them.
  void close();

 private:
  struct RegisteredBlock {
    std::uint64_t number;
    std::byte* first;
    std::size_t bytes;
    std::unique_ptr<Registration> registration;
    bool is_dropped = false;
    // Holds a mark of the GPU's work before the drop; null if it is unknown.
    std::shared_ptr<gpu::StreamMark> before = {};
  };
  void drop(std::uint64_t number);
  std::shared_ptr<gpu::StreamMark> mark() const noexcept;
  static bool is_idle(const RegisteredBlock& memory) noexcept;
  void free_idle();
  void free_when_idle(const RegisteredBlock& memory) noexcept;

  NcclInterface& library_;
  int device_;
  mutable std::mutex mutex_;              // owners are dropped by any thread
  std::vector<RegisteredBlock> all_;      // ordered by number
  std::vector<RegisteredBlock> leaving_;  // forgotten by NCCL, still used by the GPU
  std::uint64_t last_ = 0;
  bool is_closed_ = false;
};

}  // namespace lockstep::nccl
