// SPDX-License-Identifier: Apache-2.0
// Waits for GPUs, and reports failures of calls on GPUs.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Waits for GPUs, one turn a call. Meanwhile it receives messages, runs this thread's other operations, and throws
// Error stall at the timeout.
class GpuWait {
 public:
  GpuWait(CommunicatorMember& member, const char* what, const Origin& origin, const Spec* spec = nullptr)
      : member_(member), what_(what), origin_(origin), spec_(spec) {}

  void operator()() {
    member_.engine().progress_or_throw();
    constexpr unsigned turns_between_looks = 8;
    if (turns_ % turns_between_looks == turns_between_looks - 1) run_progress_hooks(0);
    const Duration now = member_.engine().platform().now();
    if (turns_ == 0) since_ = now;
    const Duration limit =
        member_.options().timeout > Duration{} ? member_.options().timeout : member_.exchange().wait_limits().limit;
    if (limit > Duration{} && now - since_ > limit) refuse(limit);
    idle(now - since_);
    ++turns_;
  }

 private:
  // Sleeps between turns, because no GPU wakes a thread. Naps are at most 2 % of the time waited, and at most 200 us.
  // MPI makes progress before each, since other members may need a message of it.
  static void idle(Duration waited) {
    using std::chrono::microseconds;
    constexpr Duration spins = microseconds(50);
    constexpr Duration yields = microseconds(2000);
    constexpr Duration longest_nap = microseconds(200);
    if (waited < spins) return;
    if (waited < yields) return std::this_thread::yield();
    run_outside_progress();
    std::this_thread::sleep_for(std::min(waited / 50, longest_nap));
  }

  [[noreturn]] void refuse(Duration limit) const {
    const std::string line = place(origin_);
    throw Error(
        Code::stall,
        text("on \"", member_.options().name, "\", ", spec_ ? to_text(signature_of(*spec_)) : what_,
             line.empty() ? "" : text(", started at ", line), ", did not end within ",
             std::chrono::duration<double>(limit).count(),
             " s: earlier work in a member's stream has not ended, or a member is gone or has not started "
             "this call"),
        "check the work that each member puts into its stream before, and that all start their plans in one order; "
        "NCCL_DEBUG=INFO shows NCCL's waits; LOCKSTEP_TIMEOUT is the limit");
  }

  CommunicatorMember& member_;
  const char* what_;
  Origin origin_;
  const Spec* spec_;
  unsigned turns_ = 0;
  Duration since_ = {};
};

// Returns f(). If f throws anything, it tells the other members. At the end of the use, the NCCL communicator is
// aborted with the call.
template <class F>
auto or_break(CommunicatorMember& member, const F& f) {
  try {
    return member.or_refuse(f);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    member.refuse(Error(Code::out_of_memory, text("in a call on GPUs: ", other.what())));
    throw;
  }
}

}  // namespace lockstep::detail
