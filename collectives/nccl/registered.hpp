// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL knows of, which the members of a clique have taken together. What its owner drops stays until all
// members have dropped theirs, because they forget it together, or until the clique is gone; and it stays until what
// the GPU was given before in its default stream is done with it. cudaFree sees to that by waiting for the whole GPU,
// NCCL does not: here an event does it, so that nobody else's work is waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/gpu/layer.hpp"
#include "collectives/nccl/library.hpp"

namespace lockstep::nccl {

class Registered : public std::enable_shared_from_this<Registered> {
 public:
  Registered(Library& library, int device) : library_(library), device_(device) {}

  // Where something is in it; memory has the same number on all members.
  struct Place {
    std::uint64_t number = 0;  // 0: nowhere
    std::uint64_t offset = 0;
    bool operator==(const Place&) const = default;
  };

  // Dropped with its last owner; from now on it is freed here.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes);
  // NCCL's word for what was added last.
  void know(std::unique_ptr<Registration> registration);
  Place find(const void* address) const;
  // What this member has dropped, and what there is at all, in order.
  std::vector<std::uint64_t> dropped();
  std::vector<std::uint64_t> all() const;
  // The word for it; nothing where it has none any more.
  std::unique_ptr<Registration> take(std::uint64_t number);
  // Of what is dropped, and forgotten by NCCL: as soon as it can be, which is looked at here and when it is asked what
  // was dropped.
  void free(std::uint64_t number);
  // The clique is gone, and with it all that NCCL knew. Waits for what the GPU does with what was dropped.
  void close();

 private:
  struct Memory {
    std::uint64_t number;
    std::byte* first;
    std::size_t bytes;
    std::unique_ptr<Registration> registration;
    bool is_dropped = false;
    std::shared_ptr<gpu::Mark> before = {};  // what the GPU was given before it was dropped; nothing: nobody knows
  };
  void drop(std::uint64_t number);
  std::shared_ptr<gpu::Mark> mark() const noexcept;
  static bool is_idle(const Memory& memory) noexcept;
  void free_idle();
  void free_when_idle(const Memory& memory) noexcept;

  Library& library_;
  int device_;
  mutable std::mutex mutex_;     // owners are dropped by any thread
  std::vector<Memory> all_;      // by number
  std::vector<Memory> leaving_;  // that NCCL has forgotten
  std::uint64_t last_ = 0;
  bool is_closed_ = false;
};

}  // namespace lockstep::nccl
