// SPDX-License-Identifier: Apache-2.0
// Only the communicator_core*.cpp files share this: calls under way, and exclusive use of the communicator by one
// thread.
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

// What GPUs do by NCCL if every member's data is in the memory of a GPU, which members ask each other when it is
// first started.
struct DeviceCall {
  enum class DevicePath : std::uint8_t { unknown, nccl, levels, host };
  static constexpr int anywhere = -2;

  std::vector<nccl::NcclCall> steps;
  // The plan of the call in which members vote on this one (CommunicatorCore::DeviceVote).
  std::shared_ptr<const Plan> meeting;
  // Where all of this member's data is; host: not in one GPU's memory.
  int device = anywhere;
  // Of the stream that the program gave; the default one is that of the GPU that has the data.
  int stream_device = anywhere;
  std::function<BoundCall()> make_host_call;
  DevicePath path = DevicePath::unknown;
  // Whether the same parts of memory that NCCL knows are given on all members.
  bool is_same_memory = false;
  void set_same_memory(bool is_same) {
    is_same_memory = is_same;
    for (nccl::NcclCall& step : steps) step.is_same_memory = is_same;
  }
  std::uint64_t places = 0;            // nccl::NcclCommunicator::places_of, when that was found out
  std::optional<BoundCall> host_call;  // once it is needed
};

// A call that is under way, or the memory of one that may come again.
struct CommunicatorCore::PendingCall {
  std::uint32_t generation = 0;
  bool busy = false;
  std::vector<CallTicket> tickets;
  std::size_t done = 0;  // of the tickets
  std::vector<StagingCopy> back;
  std::vector<std::byte> staging;     // of messages
  std::vector<StagingBuffer> staged;  // of collectives, and of messages to and from a GPU: kept until they are done
  std::vector<std::shared_ptr<gpu::StreamMark>> marks;  // of what is in GPUs' streams
  std::vector<nccl::NcclCall> together;  // of calls that are started at once, what is one operation of NCCL's
  StreamMarks behind;                    // what they come after, where that is not the default stream
  bool in_stream = false;                // of the user's, where it need not be waited for
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

class CommunicatorCore::ExclusiveUse {
 public:
  ExclusiveUse(CommunicatorCore& core, const Origin& origin) : core_(core) {
    if (try_enter(origin)) return;
    throw Error(Code::usage,
                text("communicator \"", core.options_.name, "\" is used by two threads at once; the second call is at ",
                     place(origin)),
                "give each thread a communicator of its own: duplicate() makes one");
  }
  // For a destructor, which cannot refuse: waits for the other thread, but a second or so at most, since that may be
  // this one.
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

// What f returns; what it throws is told to the other members, so that they do not wait.
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
