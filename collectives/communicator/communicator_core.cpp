// SPDX-License-Identifier: Apache-2.0
// Implements the life of a communicator, and its calls from start to end.
#include "collectives/communicator/communicator_core.hpp"

#include <exception>
#include <utility>

#include "collectives/communicator/communicator_core_parts.hpp"
#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

const std::byte token{};  // Is the data of a barrier.

}  // namespace

CommunicatorCore::CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                                   std::vector<int> ranks, TransportMaker maker, CommunicatorOptions options,
                                   node::MemoryLineage lineage)
    : members_(std::move(exchange), std::move(topology), std::move(ranks), std::move(maker), options,
               std::move(lineage), options.nccl && nccl::library() != nullptr),
      may_use_nccl_(members_.all_have_gpus()) {
  members_.call_after_failure([this] { break_if_failed(); });
}

bool CommunicatorCore::failed() const { return members_.is_closed() || members_.engine().failed(); }

void CommunicatorCore::set_timeout(Duration timeout) {
  const Duration before = options().timeout;
  members_.set_timeout(timeout);
  if (timeout != before) repeated_calls_.clear();
}

void CommunicatorCore::set_subject(const CallSubject& subject) {
  subject_ = subject;
  subject_key_ = subject == CallSubject{} ? 0 : Fingerprint().add(subject.layout).add(subject.variable).value();
}

std::optional<node::Tuning> CommunicatorCore::node_tuning() const {
  const node::Room* const room = members_.is_closed() ? nullptr : members_.engine().world().room();
  return room == nullptr ? std::nullopt : std::optional(room->tuning());
}

CallRequest CommunicatorCore::with_options(CallRequest request) const {
  if (options().order == Order::reproducible) request.order = Order::reproducible;
  request.wire = options().wire;
  return request;
}

Spec CommunicatorCore::spec_for(const CallRequest& request) {
  Spec spec = spec_of(request, size(), rank(), partitions_);
  spec.fingerprints.layout = layout_with(spec.fingerprints.layout, subject_.layout);
  spec.fingerprints.variable = subject_.variable;
  if (options().strict) spec.fingerprints.place = fingerprint_of(request.origin);
  return spec;
}

BoundCall CommunicatorCore::bound_call_from(const CallRequest& request, QueryRule query_rule) {
  members_.refuse_if_closed();
  return members_.or_refuse([&] {
    CallRequest whole = with_options(request);
    if (request.collective == Collective::barrier) whole.input = {const_cast<std::byte*>(&token), 1};
    const Spec spec = spec_for(whole);
    BoundCall bound_call;
    bound_call.call = {
        .plan = members_.planner().plan(spec),
        .input = whole.input.data,
        .output = whole.output.data,
        .kernel = request.reduction.op == ReduceOp::user ? nullptr : find_kernel(request.type, request.reduction.op),
        .user = request.reduction.user,
        .factor = request.reduction.factor,
        .origin = request.origin,
        .limit = options().timeout};
    bound_call.stream = request.stream;
    if (request.stream && staging_.can_keep_order(request, *bound_call.call.plan))
      bound_call.call.plan = in_stream(bound_call.call.plan);
    if (may_ask_where(whole, spec, query_rule)) {
      auto gpus = device_call_for(spec, whole);
      gpus->meeting = meeting(spec, request.stream ? "in a stream" : "where the data is", request.stream ? 1 : 2);
      gpus->make_host_call = [this, bound_call, whole, query_rule]() mutable {
        staging_.stage(bound_call, whole);
        if (query_rule != QueryRule::where_it_is_large)
          bound_call.call.devices = CallStaging::devices_of(bound_call.call);
        return std::move(bound_call);
      };
      bound_call.gpus = std::move(gpus);
    } else {
      staging_.stage(bound_call, whole);
      if (query_rule != QueryRule::where_it_is_large)
        bound_call.call.devices = CallStaging::devices_of(bound_call.call);
    }
    return bound_call;
  });
}

void CommunicatorCore::check(const CallRequest& request) {
  const ExclusiveUse use(members_, request.origin);
  members_.refuse_if_closed();
  members_.or_refuse([&] { return spec_of(request, size(), rank(), partitions_); });
}

BoundCall CommunicatorCore::prepare(const CallRequest& request) {
  const ExclusiveUse use(members_, request.origin);
  BoundCall bound_call = bound_call_from(request, QueryRule::once);
  staging_.locate(bound_call, request);
  return bound_call;
}

void CommunicatorCore::run(const CallRequest& request) {
  const ExclusiveUse use(members_, request.origin);
  const RepeatedCalls::Result repeated = repeated_calls_.run(request, subject_key_, asked_bytes());
  if (repeated.has_run) return;
  if (repeated.place == nullptr)
    return run_inside(bound_call_from(request, QueryRule::where_it_is_large), request.origin);
  const BoundCall bound_call = bound_call_from(request, QueryRule::never);
  if (bound_call.call.plan->in_node && !options().strict)
    RepeatedCalls::remember(*repeated.place, request, subject_key_, bound_call.call);
  members_.engine().run(bound_call.call);
}

void CommunicatorCore::run(const BoundCall& bound_call, Origin origin) {
  const ExclusiveUse use(members_, origin);
  members_.refuse_if_closed();
  staging_.refuse_if_freed(bound_call, origin);
  run_inside(bound_call, origin);
}

void CommunicatorCore::run_inside(const BoundCall& bound_call, const Origin& origin) {
  const CallHandle handle = take_slot(origin);
  pending_calls_.or_release(handle, [&] { begin(bound_call, handle); });
  if (!stays_in_stream(handle)) wait_inside(handle);
}

void CommunicatorCore::run_all(std::span<const BoundCall> calls, Origin origin) {
  const ExclusiveUse use(members_, origin);
  members_.refuse_if_closed();
  for (const BoundCall& bound_call : calls) staging_.refuse_if_freed(bound_call, origin);
  const CallHandle handle = take_slot(origin);
  begin_all(calls, handle);
  if (!stays_in_stream(handle)) wait_inside(handle);
}

CallHandle CommunicatorCore::start(const CallRequest& request) {
  const ExclusiveUse use(members_, request.origin);
  // A call that does not block asks no member for its memory, unless the members have named a stream.
  const BoundCall bound_call =
      bound_call_from(request, request.stream ? QueryRule::where_it_is_large : QueryRule::never);
  const CallHandle handle = take_slot(request.origin);
  begin_all({&bound_call, 1}, handle);
  return handle;
}

CallHandle CommunicatorCore::start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind) {
  const ExclusiveUse use(members_, origin);
  members_.refuse_if_closed();
  for (const BoundCall& bound_call : calls) staging_.refuse_if_freed(bound_call, origin);
  const CallHandle handle = take_slot(origin);
  pending_calls_.at(handle).behind = behind;
  begin_all(calls, handle);
  return handle;
}

CallHandle CommunicatorCore::exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                                      Origin origin) {
  const ExclusiveUse use(members_, origin);
  members_.refuse_if_closed();
  members_.or_refuse([&] { messages_.check(sends, receives, origin); });
  const CallHandle handle = take_slot(origin);
  pending_calls_.or_release(handle, [&] { messages_.begin(sends, receives, pending_calls_.at(handle)); });
  return handle;
}

void CommunicatorCore::begin_all(std::span<const BoundCall> calls, CallHandle handle) {
  pending_calls_.or_release(handle, [&] {
    if (calls.size() > 1) {
      begin_together(calls, handle);
    } else if (!calls.empty()) {
      begin(calls.front(), handle);
      mark_end(calls.front(), handle);
    }
  });
}

void CommunicatorCore::begin(const BoundCall& given, CallHandle handle) {
  if (given.gpus && begin_on_gpus(given, handle)) return;
  const BoundCall& bound_call = given.gpus ? *given.gpus->host_call : given;
  PendingCall& slot = pending_calls_.at(handle);
  const bool waits_for_stream = bound_call.stream && (!bound_call.keeps_order || is_changed_by_host(bound_call.call));
  if (waits_for_stream) wait_for_stream(*bound_call.stream, given.call.origin);
  wait_for_marks(slot.behind, given.call.origin);
  if (bound_call.keeps_order) return begin_in_stream(bound_call, handle);
  pending_calls_.copy_in(bound_call.in);
  slot.back.insert(slot.back.end(), bound_call.back.begin(), bound_call.back.end());
  if (bound_call.staged) slot.staged.push_back(bound_call.staged);
  pending_calls_.start(bound_call.call, slot);
}

CallHandle CommunicatorCore::take_slot(const Origin& origin) {
  staging_.log_mapping_failure();
  return pending_calls_.take(origin);
}

bool CommunicatorCore::test(CallHandle handle, Origin origin, bool& over) {
  const ExclusiveUse use(members_, origin);
  over = true;  // This holds unless it is set otherwise below.
  members_.refuse_if_closed();
  over = pending_calls_.or_release(handle,
                                   [&] { return pending_calls_.test(pending_calls_.at(handle)) && reached(handle); });
  if (!over) return false;
  pending_calls_.finish(handle);
  return true;
}

void CommunicatorCore::wait(CallHandle handle, Origin origin, bool& over) {
  const ExclusiveUse use(members_, origin);
  over = true;
  members_.refuse_if_closed();
  wait_inside(handle);
}

void CommunicatorCore::wait_inside(CallHandle handle) {
  pending_calls_.or_release(handle, [&] {
    pending_calls_.wait(pending_calls_.at(handle));
    wait_for_gpus(handle);
  });
  pending_calls_.finish(handle);
}

void CommunicatorCore::drop(CallHandle handle) noexcept {
  const ExclusiveUse use(members_);
  if (members_.is_closed()) return;
  if (!use.inside()) {
    members_.engine().log().error(
        text("a request of \"", options().name,
             "\" was destroyed inside another call of the same communicator; it stays under way"));
    return;
  }
  const PendingCall& slot = pending_calls_.at(handle);
  if (!slot.marks.empty() && !slot.in_stream)
    members_.refuse(Error(Code::usage,
                          text("a request of a call on GPUs on \"", options().name, "\", started at ",
                               place(slot.origin), ", was destroyed before it was waited for"),
                          "keep every request, and wait for it"));
  pending_calls_.drop(handle);
}

void CommunicatorCore::close() noexcept {
  members_.close(
      [this] {
        end_levels();
        end_nccl();
        end_streams();
      },
      [this] {
        pending_calls_.keep_memory();
        keep_for_ever(votes_);
        keep_for_ever(times_);
      });
}

CommunicatorCore::~CommunicatorCore() { close(); }

}  // namespace lockstep::detail
