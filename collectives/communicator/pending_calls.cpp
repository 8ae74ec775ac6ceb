// SPDX-License-Identifier: Apache-2.0
// Starts and ends the calls under way, and keeps their memory.
#include "collectives/communicator/pending_calls.hpp"

#include <utility>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
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
  slot.origin = origin;
  slot.tickets.clear();
  slot.back.clear();
  slot.marks.clear();
  slot.together.clear();
  slot.behind.clear();
  slot.in_stream = false;
  return {at, ++slot.generation};
}

void PendingCalls::release(CallHandle handle) {
  PendingCall& slot = at(handle);
  if (members_.engine().keeps_memory()) keep_memory(slot);
  slot.staged.clear();
  free_.push_back(handle.slot);
}

void PendingCalls::copy_in(std::span<const StagingCopy> copies) {
  if (copies.empty()) return;
  members_.or_refuse([&] { detail::copy_in(copies); });
}

void PendingCalls::start(const Call& call, PendingCall& slot) {
  const Duration limit = members_.options().timeout;
  if (call.limit == limit) [[likely]] {
    slot.tickets.push_back(members_.engine().start(call));
  } else {  // The call was planned under another timeout.
    Call now = call;
    now.limit = limit;
    slot.tickets.push_back(members_.engine().start(now));
  }
}

bool PendingCalls::test(PendingCall& slot) {
  for (; slot.done < slot.tickets.size(); ++slot.done) {
    if (!members_.engine().test(slot.tickets[slot.done])) return false;
  }
  return true;
}

void PendingCalls::wait(PendingCall& slot) {
  for (; slot.done < slot.tickets.size(); ++slot.done) members_.engine().wait(slot.tickets[slot.done]);
}

void PendingCalls::finish(CallHandle handle) {
  or_release(handle, [&] { members_.or_refuse([&] { copy_back(at(handle).back); }); });
  release(handle);
}

void PendingCalls::drop(CallHandle handle) {
  PendingCall& slot = at(handle);
  for (; slot.done < slot.tickets.size(); ++slot.done) members_.engine().drop(slot.tickets[slot.done]);
  release(handle);
}

void PendingCalls::keep_memory() {
  for (auto& each : calls_) keep_memory(*each);
}

void PendingCalls::keep_memory(PendingCall& slot) {
  for (auto& each : slot.staged) keep_for_ever(each);
  keep_for_ever(std::make_shared<std::vector<std::byte>>(std::move(slot.staging)));
  slot.staging = {};
}

}  // namespace lockstep::detail
