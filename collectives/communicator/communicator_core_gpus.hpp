// SPDX-License-Identifier: Apache-2.0
// What the files about calls on GPUs share: how they wait, and how what fails there is told.
#pragma once

#include <algorithm>
#include <exception>

#include "collectives/communicator/communicator_core_parts.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::detail {

// Waits for GPUs: others are heard, what the thread has begun elsewhere moves, and there is an end of patience.
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
  // Nobody wakes who waits for a GPU: naps are so short that little of the time is lost by them.
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

// What f returns; what it throws, of any kind, is told to the other members, and the NCCL communicator is broken off
// with the call.
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

// The same where the members meet in the exchange: who waits there does not hear the engine.
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

// What members make in their exchange, in which nobody hears the engine: so they come to a call of the engine first,
// where all are found to make the same, and are waited for. Who fails in that tells those that are through it. And what
// breaks the exchange, or the one that is made, breaks the communicator.
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
