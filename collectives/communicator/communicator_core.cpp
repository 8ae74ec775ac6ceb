// SPDX-License-Identifier: Apache-2.0
// Runs calls from start to end, on the host or by the device path.
#include "collectives/communicator/communicator_core.hpp"

#include <utility>

#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/plan.hpp"

namespace lockstep::detail {

// Makes the parts in the order in which they use each other. A failure then ends the work on GPUs too.
CommunicatorCore::CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                                   std::vector<int> ranks, TransportMaker maker, const CommunicatorOptions& options,
                                   node::MemoryLineage lineage)
    : member_(std::move(exchange), std::move(topology), std::move(ranks), maker, options, std::move(lineage),
              has_device_path(options)),
      factory_(member_, std::move(maker)),
      device_path_(make_device_path(member_, factory_)),
      binder_(member_, *device_path_),
      repeated_calls_(*device_path_),
      pending_calls_(member_, *device_path_),
      messages_(member_, pending_calls_) {
  member_.call_after_failure([this] { device_path_->abort(); });
}

CommunicatorCore::~CommunicatorCore() { close(); }

// Ends the work on GPUs first. If messages may still use memory, the second function keeps it for ever.
void CommunicatorCore::close() noexcept {
  member_.close([this] { device_path_->end(); },
                [this] {
                  pending_calls_.keep_memory();
                  device_path_->keep_memory();
                });
}

// Kept calls hold the timeout, so they are forgotten with it.
void CommunicatorCore::set_timeout(Duration timeout) {
  const Duration before = member_.options().timeout;
  member_.set_timeout(timeout);
  if (timeout != before) repeated_calls_.clear();
}

// Tries the kept calls first. A call that is kept needs no vote, because it is too small for one.
void CommunicatorCore::run(const CallRequest& request) {
  ExclusiveUse use(member_, request.origin, DefersCancellation::later);
  member_.refuse_if_closed();
  const RepeatedCalls::Match repeated = repeated_calls_.find(request, binder_.subject_key());
  if (repeated.call != nullptr) return member_.engine().run(*repeated.call, &use.cancellation());
  use.cancellation().begin();
  if (repeated.place == nullptr) return run_inside(binder_.bind(request, QueryRule::if_large), request.origin);
  member_.engine().run(bind_repeated(request, *repeated.place).call);
}

BoundCall CommunicatorCore::bind_repeated(const CallRequest& request, RepeatedCalls::RepeatedCall& place) {
  BoundCall bound_call = binder_.bind(request, QueryRule::never);
  bound_call.call.is_on_host = true;
  if (bound_call.call.plan->in_node && !member_.options().strict)
    RepeatedCalls::remember(place, request, binder_.subject_key(), bound_call.call);
  return bound_call;
}

void CommunicatorCore::run(const BoundCall& bound_call, Origin origin) {
  ExclusiveUse use(member_, origin, DefersCancellation::later);
  refuse_if_gone({&bound_call, 1}, origin);
  if (bound_call.is_direct()) return run_direct(bound_call.call, &use.cancellation());
  use.cancellation().begin();
  run_inside(bound_call, origin);
}

void CommunicatorCore::run_direct(const Call& call, CancellationDeferral* cancellation) {
  const Duration limit = member_.options().timeout;
  if (call.limit == limit) [[likely]]
    return member_.engine().run(call, cancellation);
  Call now = call;  // The call was planned under another timeout.
  now.limit = limit;
  member_.engine().run(now, cancellation);
}

void CommunicatorCore::run_as_agreed(const CallRequest& request, int device) {
  const ExclusiveUse use(member_, request.origin);
  const BoundCall bound_call = binder_.bind(request, QueryRule::at_first_start);
  if (bound_call.gpus) device_path_->decide_on(*bound_call.gpus, device, request.origin);
  run_inside(bound_call, request.origin);
}

// Starts the call in a slot, and releases the slot if that throws.
void CommunicatorCore::run_inside(const BoundCall& bound_call, const Origin& origin) {
  const CallHandle handle = take_slot(origin);
  pending_calls_.or_release(handle, [&] { begin(bound_call, pending_calls_.at(handle)); });
  wait_unless_in_stream(handle);
}

void CommunicatorCore::run_all(std::span<const BoundCall> calls, Origin origin) {
  const ExclusiveUse use(member_, origin);
  refuse_if_gone(calls, origin);
  if (calls.size() == 1 && calls.front().is_direct()) return run_direct(calls.front().call);
  const CallHandle handle = take_slot(origin);
  begin_all(calls, handle);
  wait_unless_in_stream(handle);
}

CallHandle CommunicatorCore::start(const CallRequest& request) {
  ExclusiveUse use(member_, request.origin, DefersCancellation::later);
  member_.refuse_if_closed();
  const RepeatedCalls::Match repeated = repeated_calls_.find(request, binder_.subject_key());
  if (repeated.call != nullptr) return start_direct(*repeated.call, request.origin, &use.cancellation());
  use.cancellation().begin();
  // A call that does not block asks no member for its memory, unless the members have named a stream.
  const BoundCall bound_call = repeated.place != nullptr
                                   ? bind_repeated(request, *repeated.place)
                                   : binder_.bind(request, request.stream ? QueryRule::if_large : QueryRule::never);
  const CallHandle handle = take_slot(request.origin);
  begin_all({&bound_call, 1}, handle);
  return handle;
}

CallHandle CommunicatorCore::start_direct(const Call& call, const Origin& origin, CancellationDeferral* cancellation) {
  const CallHandle handle = pending_calls_.take(origin);
  pending_calls_.or_release(handle, [&] { pending_calls_.start(call, pending_calls_.at(handle), cancellation); });
  return handle;
}

CallHandle CommunicatorCore::start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind) {
  const ExclusiveUse use(member_, origin);
  refuse_if_gone(calls, origin);
  if (calls.size() == 1 && behind.empty() && calls.front().is_direct()) return start_direct(calls.front().call, origin);
  const CallHandle handle = take_slot(origin);
  pending_calls_.at(handle).on_gpus.behind = behind;
  begin_all(calls, handle);
  return handle;
}

CallHandle CommunicatorCore::exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                                      Origin origin) {
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  member_.or_refuse([&] { messages_.check(sends, receives, origin); });
  messages_.try_now(sends, receives, false, origin);
  return begin_exchange(sends, receives, origin);
}

void CommunicatorCore::run_exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                                    Origin origin) {
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  member_.or_refuse([&] { messages_.check(sends, receives, origin); });
  if (!messages_.try_now(sends, receives, true, origin))
    pending_calls_.wait_inside(begin_exchange(sends, receives, origin));
}

// Begins the messages that were not moved at once.
CallHandle CommunicatorCore::begin_exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                                            const Origin& origin) {
  const CallHandle handle = take_slot(origin);
  pending_calls_.or_release(handle, [&] { messages_.begin(sends, receives, pending_calls_.at(handle)); });
  return handle;
}

void CommunicatorCore::refuse_if_gone(std::span<const BoundCall> calls, const Origin& origin) {
  member_.refuse_if_closed();
  for (const BoundCall& bound_call : calls) binder_.staging().refuse_if_freed(bound_call, origin);
}

CallHandle CommunicatorCore::take_slot(const Origin& origin) {
  binder_.staging().log_mapping_failure();
  return pending_calls_.take(origin);
}

// GPUs may run several calls as one operation. Otherwise each begins by itself.
void CommunicatorCore::begin_all(std::span<const BoundCall> calls, CallHandle handle) {
  PendingCall& slot = pending_calls_.at(handle);
  const auto begin_one = [&](const BoundCall& given) {
    begin(given, slot);
    const BoundCall& bound_call = given.gpus && given.gpus->host_call ? *given.gpus->host_call : given;
    if (bound_call.keeps_order) device_path_->mark_end(bound_call, slot.on_gpus);
  };
  pending_calls_.or_release(handle, [&] {
    if (calls.size() > 1)
      device_path_->begin_all(calls, slot.on_gpus, std::cref(begin_one));
    else if (!calls.empty())
      begin_one(calls.front());
  });
}

// Begins one call by the first path that takes it: the GPUs, a stream that members share, or the host.
void CommunicatorCore::begin(const BoundCall& given, PendingCall& slot) {
  if (given.gpus && device_path_->begin(given, slot.on_gpus)) return;
  const BoundCall& bound_call = given.gpus ? *given.gpus->host_call : given;
  if (bound_call.staged) slot.staged.push_back(bound_call.staged);
  if ((bound_call.stream || !slot.on_gpus.behind.empty()) &&
      device_path_->begin_in_stream(bound_call, given.call.origin, slot.on_gpus))
    return;
  pending_calls_.copy_in(bound_call.in);
  slot.back.insert(slot.back.end(), bound_call.back.begin(), bound_call.back.end());
  pending_calls_.start(bound_call.call, slot);
}

void CommunicatorCore::wait_unless_in_stream(CallHandle handle) {
  const PendingCall& slot = pending_calls_.at(handle);
  if (slot.on_gpus.in_stream && slot.tickets.empty() && !slot.ended_at_once) return pending_calls_.release(handle);
  pending_calls_.wait_inside(handle);
}

}  // namespace lockstep::detail
