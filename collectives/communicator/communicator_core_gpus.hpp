// SPDX-License-Identifier: Apache-2.0
// Holds templates that the files about calls on GPUs share: how they wait, and how they report failures.
#pragma once

#include <algorithm>
#include <exception>

#include "collectives/communicator/communicator_core_parts.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::detail {

// Waits for GPUs, one turn a call. Meanwhile it receives messages, runs this thread's other operations, and throws
// Error stall at the timeout.
class CommunicatorCore::GpuWait {
 public:
  GpuWait(CommunicatorCore& core, const char* what, const Origin& origin, const Spec* spec = nullptr)
      : core_(core), what_(what), origin_(origin), spec_(spec) {}

  void operator()() {
    core_.members_.engine().progress_or_throw();
    constexpr unsigned turns_between_looks = 8;
    if (turns_ % turns_between_looks == turns_between_looks - 1) run_progress_hooks(0);
    const Duration now = core_.members_.engine().world().now();
    if (turns_ == 0) since_ = now;
    const Duration limit = core_.members_.options().timeout > Duration{} ? core_.members_.options().timeout
                                                                         : core_.members_.exchange().patience().limit;
    if (limit > Duration{} && now - since_ > limit) refuse(limit);
    idle(now - since_);
    ++turns_;
  }

 private:
  // Sleeps between turns, because no GPU wakes a thread. Naps are at most 2 % of the time waited, and at most 200 us.
  static void idle(Duration waited) {
    using std::chrono::microseconds;
    constexpr Duration spins = microseconds(50);
    constexpr Duration yields = microseconds(2000);
    constexpr Duration longest_nap = microseconds(200);
    if (waited < spins) return;
    if (waited < yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min(waited / 50, longest_nap));
  }

  [[noreturn]] void refuse(Duration limit) const {
    const std::string line = place(origin_);
    throw Error(
        Code::stall,
        text("on \"", core_.members_.options().name, "\", ", spec_ ? to_text(signature_of(*spec_)) : what_,
             line.empty() ? "" : text(", begun at ", line), ", has not ended for ",
             std::chrono::duration<double>(limit).count(),
             " s: what is before it in the stream of a member has not ended, or a member has not started it, or "
             "is gone"),
        "look at what each member puts into its stream before, whether all start their plans alike, and at "
        "NCCL_DEBUG=INFO; LOCKSTEP_TIMEOUT is the limit");
  }

  CommunicatorCore& core_;
  const char* what_;
  Origin origin_;
  const Spec* spec_;
  unsigned turns_ = 0;
  Duration since_ = {};
};

// Returns f(). If f throws anything, it tells the other members, and the NCCL communicator is aborted with the call.
template <class F>
auto CommunicatorCore::or_break(const F& f) {
  try {
    return members_.or_refuse(f);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    members_.engine().refuse(Error(Code::out_of_memory, text("in a call on GPUs: ", other.what())));
    throw;
  }
}

}  // namespace lockstep::detail
