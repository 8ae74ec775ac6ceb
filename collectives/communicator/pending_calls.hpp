// SPDX-License-Identifier: Apache-2.0
// Holds the calls of a communicator that are under way.
//
// A CommunicatorCore owns it. A Request refers to its call by a handle: the number of a slot, and a generation that
// tells it from later calls in that slot.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/communicator/request.hpp"
#include "collectives/communicator/staging.hpp"
#include "collectives/engine/core.hpp"

namespace lockstep::detail {

// Holds a call under way, or the memory of one that may be repeated.
struct PendingCall {
  std::uint32_t generation = 0;
  std::vector<CallTicket> tickets;
  std::size_t done = 0;                     // Counts finished tickets.
  std::optional<Collective> ended_at_once;  // Is set if a call ended in start(), and so has no ticket.
  std::vector<StagingCopy> back;
  std::vector<std::byte> staging;     // Holds messages.
  std::vector<StagingBuffer> staged;  // Belongs to collectives, and to messages of GPUs, until they are done.
  DeviceProgress on_gpus;
  Origin origin;

  // True if its only call ended in start(), and nothing is left but to release it.
  bool has_ended() const { return ended_at_once && tickets.empty() && back.empty() && on_gpus.marks.empty(); }
};

// Gives each call under way a slot. A slot is reused with its memory, so that a repeated call allocates nothing.
class PendingCalls {
 public:
  PendingCalls(CommunicatorMember& member, DevicePath& device_path) : member_(member), device_path_(device_path) {}

  // Test or wait for a started call. They set `over`, even if they throw: true means that the handle is no longer
  // valid. test() returns true if the call is complete.
  bool test(CallHandle handle, Origin origin, bool& over);
  void wait(CallHandle handle, Origin origin, bool& over);
  // Gives up a call if its Request was destroyed before it was waited for.
  void drop(CallHandle handle) noexcept;

  // Takes a slot for a call. The caller starts the call there, and waits for it or releases the slot.
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
  void start(const Call& call, PendingCall& slot, CancellationDeferral* cancellation = nullptr);
  // Waits inside another call of the communicator, and releases the slot.
  void wait_inside(CallHandle handle);
  // Keeps the memory of all calls, because messages may still use it.
  void keep_memory();

 private:
  void finish(CallHandle handle);
  static void keep_memory(PendingCall& slot);

  CommunicatorMember& member_;
  DevicePath& device_path_;
  std::vector<std::unique_ptr<PendingCall>> calls_;
  std::vector<std::size_t> free_;  // Holds free slots; the last is used first.
};

}  // namespace lockstep::detail
