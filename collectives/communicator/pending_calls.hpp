// SPDX-License-Identifier: Apache-2.0
// Holds the calls of a communicator that are under way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator/membership.hpp"
#include "collectives/communicator/request.hpp"
#include "collectives/communicator/staging.hpp"
#include "collectives/engine/core.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace lockstep::detail {

using StreamMarks = std::vector<std::shared_ptr<gpu::StreamMark>>;

// Holds a call under way, or the memory of one that may be repeated.
struct PendingCall {
  std::uint32_t generation = 0;
  std::vector<CallTicket> tickets;
  std::size_t done = 0;  // Counts finished tickets.
  std::vector<StagingCopy> back;
  std::vector<std::byte> staging;        // Holds messages.
  std::vector<StagingBuffer> staged;     // Belongs to collectives, and to messages of GPUs, until they are done.
  StreamMarks marks;                     // Mark the work in GPUs' streams.
  std::vector<nccl::NcclCall> together;  // Holds calls started at once that NCCL does as one operation.
  StreamMarks behind;                    // Mark the work before the call, unless that is in the default stream.
  bool in_stream = false;                // True if the program gave the stream, so that the host need not wait.
  Origin origin;
};

// Gives each call under way a slot. A slot is reused with its memory, so that a repeated call allocates nothing.
class PendingCalls {
 public:
  explicit PendingCalls(Membership& members) : members_(members) {}

  // Takes a slot. The caller releases it, or finish() does.
  CallHandle take(const Origin& origin);
  // Returns the call in a slot; the reference stays valid.
  PendingCall& at(CallHandle handle) { return *calls_[handle.slot]; }
  void release(CallHandle handle);
  // Returns f(). If f throws, it releases the slot.
  template <class F>
  auto or_release(CallHandle handle, const F& f) {
    try {
      return f();
    } catch (...) {
      release(handle);
      throw;
    }
  }

  // Copies data to staging memory, before start().
  void copy_in(std::span<const StagingCopy> copies);
  // Starts a call of the engine for this slot, with the present timeout.
  void start(const Call& call, PendingCall& slot);
  // True if all calls of the engine are done. Throws the first failure.
  bool test(PendingCall& slot);
  // Waits until all calls of the engine are done.
  void wait(PendingCall& slot);
  // Copies results back from staging memory, and releases the slot.
  void finish(CallHandle handle);
  // Gives up the calls of the engine, and releases the slot.
  void drop(CallHandle handle);
  // Keeps the memory of all calls, because messages may still use it.
  void keep_memory();

 private:
  static void keep_memory(PendingCall& slot);

  Membership& members_;
  std::vector<std::unique_ptr<PendingCall>> calls_;
  std::vector<std::size_t> free_;  // Holds free slots; the last is used first.
};

}  // namespace lockstep::detail
