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
    core_.engine_->progress_or_throw();
    constexpr unsigned turns_between_looks = 8;
    if (turns_ % turns_between_looks == turns_between_looks - 1) run_progress_hooks(0);
    const Duration now = core_.engine_->world().now();
    if (turns_ == 0) since_ = now;
    const Duration limit =
        core_.options_.timeout > Duration{} ? core_.options_.timeout : core_.exchange_->patience().limit;
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
        text("on \"", core_.options_.name, "\", ", spec_ ? to_text(signature_of(*spec_)) : what_,
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
    return or_refuse(f);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    engine_->refuse(Error(Code::out_of_memory, text("in a call on GPUs: ", other.what())));
    throw;
  }
}

// Returns f(). If f throws, it tells the members that wait in the exchange, which do not hear the engine.
template <class F>
auto CommunicatorCore::in_exchange(const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (!exchange_->failed()) exchange_->fail(error.detail());
    throw;
  } catch (const std::exception& other) {
    if (!exchange_->failed()) exchange_->fail(other.what());
    throw;
  }
}

// Runs f, in which members make something through their exchange. Members in an exchange don't hear the engine, so
// they first meet in a call of the engine, which compares their requests. A member that fails in f tells the others.
// An error that breaks the exchange or the new object breaks the communicator.
template <class F>
auto CommunicatorCore::make_together(Collective what, const Origin& origin, const F& f) {
  in_exchange([&] { come_to(what, origin); });
  try {
    return f();
  } catch (const Error& error) {
    constexpr std::array broken = {Code::stall, Code::peer_failed, Code::mismatch};
    if (exchange_->failed() || std::ranges::find(broken, error.code()) != broken.end()) refuse_together(error);
    throw;
  } catch (const std::exception& other) {
    refuse_together(Error(Code::out_of_memory, text("in ", to_string(what), ": ", other.what())));
    throw;
  }
}

}  // namespace lockstep::detail
