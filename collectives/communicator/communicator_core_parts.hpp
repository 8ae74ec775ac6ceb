// SPDX-License-Identifier: Apache-2.0
// Holds types that only the communicator_core*.cpp files share: calls under way, and exclusive use of a communicator
// by one thread.
#pragma once

#include <pthread.h>

#include <chrono>
#include <thread>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Describes a call for NCCL, which runs if every member's data is in a GPU's memory. Members find that out by a vote
// when the call first starts.
struct DeviceCall {
  enum class DevicePath : std::uint8_t { unknown, nccl, levels, host };
  static constexpr int anywhere = -2;

  std::vector<nccl::NcclCall> steps;
  // Plans the call in which members vote on this one (CommunicatorCore::DeviceVote).
  std::shared_ptr<const Plan> meeting;
  // Names the GPU that holds all of this member's data, or the host if no single GPU does. `anywhere` means no data.
  int device = anywhere;
  // Names the GPU of the program's stream. The default stream is that of the GPU with the data.
  int stream_device = anywhere;
  std::function<BoundCall()> make_host_call;
  DevicePath path = DevicePath::unknown;
  // True if all members give the same parts of the memory that NCCL has registered.
  bool is_same_memory = false;
  void set_same_memory(bool is_same) {
    is_same_memory = is_same;
    for (nccl::NcclCall& step : steps) step.is_same_memory = is_same;
  }
  std::uint64_t places = 0;            // Holds nccl::NcclCommunicator::places_of at the time of the vote.
  std::optional<BoundCall> host_call;  // Is made when it is needed.
};

// Holds a call under way, or the memory of one that may be repeated.
struct CommunicatorCore::PendingCall {
  std::uint32_t generation = 0;
  bool busy = false;
  std::vector<CallTicket> tickets;
  std::size_t done = 0;  // Counts finished tickets.
  std::vector<StagingCopy> back;
  std::vector<std::byte> staging;     // Holds messages.
  std::vector<StagingBuffer> staged;  // Belongs to collectives, and to messages of GPUs, until they are done.
  std::vector<std::shared_ptr<gpu::StreamMark>> marks;  // Mark the work in GPUs' streams.
  std::vector<nccl::NcclCall> together;                 // Holds calls started at once that NCCL does as one operation.
  StreamMarks behind;      // Mark the work before the call, unless that is in the default stream.
  bool in_stream = false;  // True if the program gave the stream, so that the host need not wait.
  Origin origin;
};

// Defers pthread_cancel() until a call is over, because the other members count on it.
class CancellationDeferred {
 public:
  CancellationDeferred() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDeferred() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationDeferred(const CancellationDeferred&) = delete;
  CancellationDeferred& operator=(const CancellationDeferred&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Gives one thread the communicator. Throws Error usage if another thread is inside.
class CommunicatorCore::ExclusiveUse {
 public:
  ExclusiveUse(CommunicatorCore& core, const Origin& origin) : core_(core) {
    if (try_enter(origin)) return;
    throw Error(Code::usage,
                text("communicator \"", core.options_.name, "\" is used by two threads at once; the second call is at ",
                     place(origin)),
                "give each thread a communicator of its own: duplicate() makes one");
  }
  // Waits for another thread, but at most about a second, since that may be this one. It serves destructors, which
  // must not throw.
  explicit ExclusiveUse(CommunicatorCore& core) : core_(core) {
    constexpr int most = 50'000;
    for (int i = 0; i < most && !try_enter(nowhere); ++i) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ~ExclusiveUse() {
    if (!inside_) return;
    core_.break_if_failed();
    core_.user_.store(nullptr, std::memory_order_release);
  }
  bool inside() const { return inside_; }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  static constexpr Origin nowhere{};

  bool try_enter(const Origin& origin) {
    const Origin* nobody = nullptr;
    inside_ = core_.user_.compare_exchange_strong(nobody, &origin, std::memory_order_acquire);
    return inside_;
  }

  const CancellationDeferred deferred_;
  CommunicatorCore& core_;
  bool inside_ = false;
};

// Returns f(). If f throws an Error, it tells the other members, so that they don't wait.
template <class F>
auto CommunicatorCore::or_refuse(const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    engine_->refuse(error);
    throw;
  }
}

}  // namespace lockstep::detail
