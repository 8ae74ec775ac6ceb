// SPDX-License-Identifier: Apache-2.0
// Starts and ends the calls under way, and keeps their memory.
#include "collectives/communicator/pending_calls.hpp"

#include <utility>

#include "collectives/communicator/exclusive_use.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {

CallHandle PendingCalls::take(const Origin& origin) {
  if (free_.empty()) {
    calls_.push_back(std::make_unique<PendingCall>());
    free_.reserve(calls_.size());
    free_.push_back(calls_.size() - 1);
  }
  const std::size_t at = free_.back();
  free_.pop_back();
  PendingCall& slot = *calls_[at];
  slot.done = 0;
  slot.ended_at_once.reset();
  slot.origin = origin;
  slot.tickets.clear();
  slot.back.clear();
  slot.on_gpus.clear();
  return {at, ++slot.generation};
}

void PendingCalls::release(CallHandle handle) {
  PendingCall& slot = at(handle);
  if (member_.engine().keeps_memory()) keep_memory(slot);
  slot.staged.clear();
  free_.push_back(handle.slot);
}

void PendingCalls::copy_in(std::span<const StagingCopy> copies) {
  if (copies.empty()) return;
  member_.or_refuse([&] { detail::copy_in(copies); });
}

void PendingCalls::start(const Call& call, PendingCall& slot, CancellationDeferral* cancellation) {
  const Duration limit = member_.options().timeout;
  std::optional<CallTicket> ticket;
  if (call.limit == limit) [[likely]] {
    ticket = member_.engine().start(call, cancellation);
  } else {  // The call was planned under another timeout.
    Call now = call;
    now.limit = limit;
    ticket = member_.engine().start(now, cancellation);
  }
  if (ticket)
    slot.tickets.push_back(*ticket);
  else
    slot.ended_at_once = call.plan->spec.collective;
}

bool PendingCalls::test(CallHandle handle, Origin origin, bool& over) {
  const ExclusiveUse use(member_, origin);
  over = true;  // This holds unless it is set otherwise below.
  member_.refuse_if_closed();
  PendingCall& slot = at(handle);
  over = or_release(handle, [&] {
    for (; slot.done < slot.tickets.size(); ++slot.done) {
      if (!member_.engine().test(slot.tickets[slot.done])) return false;
    }
    return slot.on_gpus.marks.empty() || device_path_.has_reached(slot.on_gpus);
  });
  if (!over) return false;
  finish(handle);
  return true;
}

void PendingCalls::wait(CallHandle handle, Origin origin, bool& over) {
  ExclusiveUse use(member_, origin, DefersCancellation::later);
  over = true;
  member_.refuse_if_closed();
  if (!at(handle).has_ended()) use.cancellation().begin();
  wait_inside(handle);
}

void PendingCalls::wait_inside(CallHandle handle) {
  PendingCall& slot = at(handle);
  or_release(handle, [&] {
    for (; slot.done < slot.tickets.size(); ++slot.done) member_.engine().wait(slot.tickets[slot.done]);
    if (!slot.on_gpus.marks.empty()) device_path_.wait(slot.on_gpus, slot.origin);
  });
  finish(handle);
}

// Copies results back from staging memory, and releases the slot.
void PendingCalls::finish(CallHandle handle) {
  if (!at(handle).back.empty()) or_release(handle, [&] { member_.or_refuse([&] { copy_back(at(handle).back); }); });
  release(handle);
}

void PendingCalls::drop(CallHandle handle) noexcept {
  const ExclusiveUse use(member_);
  if (member_.is_closed()) return;
  if (!use.inside()) {
    member_.engine().log().error(
        text("a request of \"", member_.options().name,
             "\" was destroyed inside another call of the same communicator; it stays under way"));
    return;
  }
  PendingCall& slot = at(handle);
  for (; slot.done < slot.tickets.size(); ++slot.done) member_.engine().drop(slot.tickets[slot.done]);
  if (!slot.on_gpus.marks.empty() && !slot.on_gpus.in_stream) member_.engine().drop("a call on GPUs", slot.origin);
  if (slot.ended_at_once) member_.engine().drop(to_string(*slot.ended_at_once), slot.origin);
  release(handle);
}

void PendingCalls::keep_memory() {
  for (auto& each : calls_) keep_memory(*each);
}

void PendingCalls::keep_memory(PendingCall& slot) {
  for (auto& each : slot.staged) keep_forever(each);
  keep_forever(std::make_shared<std::vector<std::byte>>(std::move(slot.staging)));
  slot.staging = {};
}

}  // namespace lockstep::detail
