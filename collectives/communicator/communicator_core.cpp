// SPDX-License-Identifier: Apache-2.0
// Implements the life of a communicator, and its calls from start to end.
#include "collectives/communicator/communicator_core.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "collectives/communicator/communicator_core_parts.hpp"
#include "collectives/communicator/communicator_core_rooms.hpp"
#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/engine/checked_transport.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

const std::byte token{};  // Is the data of a barrier.

// Returns a random number. It is never 0, and fits a JSON number (53 bits).
std::uint64_t drawn_number() {
  std::random_device random;
  constexpr unsigned half = 32;
  constexpr std::uint64_t most = (std::uint64_t{1} << 53U) - 1;
  return std::max<std::uint64_t>(1, (std::uint64_t{random()} << half | random()) & most);
}

std::size_t index_of_me(const Exchange& exchange) { return static_cast<std::size_t>(exchange.rank()); }

}  // namespace

CommunicatorCore::CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                                   std::vector<int> ranks, TransportMaker maker, CommunicatorOptions options,
                                   node::MemoryLineage lineage)
    : options_(std::move(options)),
      exchange_(std::move(exchange)),
      topology_(std::move(topology)),
      ranks_(std::move(ranks)),
      maker_(std::move(maker)),
      room_(room_for(*exchange_, *topology_, ranks_, options_, std::move(lineage))),
      node_room_(node_room_for(*exchange_, *topology_, ranks_, options_)),
      planner_(std::make_unique<Planner>(
          topology_, Group(ranks_, ranks_.at(index_of_me(*exchange_))),
          PlannerOptions{.algorithm = options_.algorithm,
                         .table = options_.table,
                         .table_name = options_.table_name,
                         .node_element = room_ ? node::Room::most_element(static_cast<int>(ranks_.size())) : 0,
                         .near_element = node_room_.most_element})) {
  auto transport = maker_(*exchange_);
  if (!transport) throw Error(Code::internal, "no transport fits this exchange", "give a TransportMaker that knows it");
  if (options_.checksums) transport = checked_transport(std::move(transport));
  const Waiter waiter(crowding(*topology_, ranks_, index_of_me(*exchange_)));
  if (!room_) room_ = std::move(node_room_.room);
  // Members agree to use NCCL if all can. They take the first member's number, which no other communicator has.
  std::array<std::uint64_t, 2> mine = {options_.nccl && nccl::library() != nullptr ? 1U : 0U, drawn_number()};
  const auto all = exchange_->all_gather("what members may use", std::as_bytes(std::span(mine)));
  may_use_nccl_ = true;
  std::uint64_t id = 0;
  for (std::size_t member = 0; member < all.size(); ++member) {
    std::array<std::uint64_t, 2> theirs{};
    std::memcpy(theirs.data(), all[member].data(), std::min(all[member].size(), sizeof theirs));
    may_use_nccl_ = may_use_nccl_ && theirs[0] == 1;
    if (member == 0) id = theirs[1];
  }
  engine_ = std::make_unique<Engine<RealWorld>>(RealWorld(std::move(transport), waiter, std::move(room_)),
                                                EngineOptions{.patience = exchange_->patience(),
                                                              .log = exchange_->log(),
                                                              .name = options_.name,
                                                              .progress_thread = options_.progress_thread,
                                                              .is_seen = options_.is_watched,
                                                              .is_watched = options_.is_watched,
                                                              .id = id,
                                                              .members = Members(topology_, ranks_)});
  creation_guard_.done();
}

std::vector<AlgorithmCandidate> CommunicatorCore::candidates(const Spec& spec) { return planner_->candidates(spec); }

bool CommunicatorCore::failed() const { return closed_ || engine_->failed(); }

void CommunicatorCore::set_timeout(Duration timeout) {
  if (timeout < Duration{})
    throw Error(Code::usage, text("a timeout of ", std::chrono::duration<double>(timeout).count(), " s"),
                "give a positive time, or zero for none");
  if (timeout != options_.timeout) repeated_calls_ = {};  // Repeated calls hold the old timeout.
  options_.timeout = timeout;
}

void CommunicatorCore::set_subject(const CallSubject& subject) {
  subject_ = subject;
  subject_key_ = subject == CallSubject{} ? 0 : Fingerprint().add(subject.layout).add(subject.variable).value();
}

std::optional<node::Tuning> CommunicatorCore::node_tuning() const {
  const node::Room* const room = closed_ ? nullptr : engine_->world().room();
  return room == nullptr ? std::nullopt : std::optional(room->tuning());
}

node::Room* CommunicatorCore::room_of_all() const {
  node::Room* const room = engine_->world().room();
  return room != nullptr && room->size() == size() ? room : nullptr;
}

CommunicatorCore::PendingCall& CommunicatorCore::pending(CallHandle handle) { return *pending_calls_[handle.slot]; }

void CommunicatorCore::refuse_closed() const {
  throw Error(Code::poisoned, text("communicator \"", options_.name, "\" was destroyed"),
              "keep the communicator until its last request has been waited for");
}

CallRequest CommunicatorCore::with_options(CallRequest request) const {
  if (options_.order == Order::reproducible) request.order = Order::reproducible;
  request.wire = options_.wire;
  return request;
}

Spec CommunicatorCore::spec_for(const CallRequest& request) {
  Spec spec = spec_of(request, size(), rank(), partitions_);
  spec.fingerprints.layout = layout_with(spec.fingerprints.layout, subject_.layout);
  spec.fingerprints.variable = subject_.variable;
  if (options_.strict) spec.fingerprints.place = fingerprint_of(request.origin);
  return spec;
}

BoundCall CommunicatorCore::bound_call_from(const CallRequest& request, QueryRule query_rule) {
  refuse_if_closed();
  return or_refuse([&] {
    CallRequest whole = with_options(request);
    if (request.collective == Collective::barrier) whole.input = {const_cast<std::byte*>(&token), 1};
    const Spec spec = spec_for(whole);
    BoundCall bound_call;
    bound_call.call = {
        .plan = planner_->plan(spec),
        .input = whole.input.data,
        .output = whole.output.data,
        .kernel = request.reduction.op == ReduceOp::user ? nullptr : find_kernel(request.type, request.reduction.op),
        .user = request.reduction.user,
        .factor = request.reduction.factor,
        .origin = request.origin,
        .limit = options_.timeout};
    bound_call.stream = request.stream;
    if (request.stream && can_keep_order(request, *bound_call.call.plan))
      bound_call.call.plan = in_stream(bound_call.call.plan);
    if (may_ask_where(whole, spec, query_rule)) {
      auto gpus = device_call_for(spec, whole);
      gpus->meeting = request.stream ? meeting(spec, "in a stream", {.vote = PlanChoice::Vote::stream_path})
                                     : meeting(spec, "where the data is", {.vote = PlanChoice::Vote::data_location});
      gpus->make_host_call = [this, bound_call, whole, query_rule]() mutable {
        stage(bound_call, whole);
        if (query_rule != QueryRule::where_it_is_large) bound_call.call.devices = devices_of(bound_call.call);
        return std::move(bound_call);
      };
      bound_call.gpus = std::move(gpus);
    } else {
      stage(bound_call, whole);
      if (query_rule != QueryRule::where_it_is_large) bound_call.call.devices = devices_of(bound_call.call);
    }
    return bound_call;
  });
}

void CommunicatorCore::check(const CallRequest& request) {
  const ExclusiveUse use(*this, request.origin);
  refuse_if_closed();
  or_refuse([&] { return spec_of(request, size(), rank(), partitions_); });
}

BoundCall CommunicatorCore::prepare(const CallRequest& request) {
  const ExclusiveUse use(*this, request.origin);
  BoundCall bound_call = bound_call_from(request, QueryRule::once);
  bound_call.locations = {location_of(request.input, request.element_bytes),
                          location_of(request.output, request.element_bytes)};
  return bound_call;
}

void CommunicatorCore::run(const CallRequest& request) {
  if (RepeatedCall* const repeated_call = repeated_call_for(request)) return run_repeated(*repeated_call, request);
  const ExclusiveUse use(*this, request.origin);
  run_inside(bound_call_from(request, QueryRule::where_it_is_large), request.origin);
}

void CommunicatorCore::run(const BoundCall& bound_call, Origin origin) {
  const ExclusiveUse use(*this, origin);
  refuse_if_closed();
  refuse_if_freed(bound_call, origin);
  run_inside(bound_call, origin);
}

void CommunicatorCore::run_inside(const BoundCall& bound_call, const Origin& origin) {
  const CallHandle handle = take_slot(origin);
  begin(bound_call, handle);
  if (!stays_in_stream(handle)) wait_inside(handle);
}

CallHandle CommunicatorCore::start(const CallRequest& request) {
  const ExclusiveUse use(*this, request.origin);
  // A call that does not block asks no member for its memory, unless the members have named a stream.
  const BoundCall bound_call =
      bound_call_from(request, request.stream ? QueryRule::where_it_is_large : QueryRule::never);
  const CallHandle handle = take_slot(request.origin);
  begin(bound_call, handle);
  mark_end(bound_call, handle);
  return handle;
}

CallHandle CommunicatorCore::start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind) {
  const ExclusiveUse use(*this, origin);
  refuse_if_closed();
  for (const BoundCall& bound_call : calls) refuse_if_freed(bound_call, origin);
  const CallHandle handle = take_slot(origin);
  pending(handle).behind = behind;
  begin_all(calls, handle);
  return handle;
}

void CommunicatorCore::begin_all(std::span<const BoundCall> calls, CallHandle handle) {
  if (calls.size() > 1) {
    begin_together(calls, handle);
  } else if (!calls.empty()) {
    begin(calls.front(), handle);
    mark_end(calls.front(), handle);
  }
}

void CommunicatorCore::begin(const BoundCall& given, CallHandle handle) {
  if (given.gpus && begin_on_gpus(given, handle)) return;
  const BoundCall& bound_call = given.gpus ? *given.gpus->host_call : given;
  const bool waits_for_stream = bound_call.stream && (!bound_call.keeps_order || is_changed_by_host(bound_call.call));
  if (waits_for_stream || !pending(handle).behind.empty()) {
    try {
      if (waits_for_stream) wait_for_stream(*bound_call.stream, given.call.origin);
      wait_for_marks(pending(handle).behind, given.call.origin);
    } catch (...) {
      release(handle);
      throw;
    }
  }
  if (bound_call.keeps_order) return begin_in_stream(bound_call, handle);
  copy_all(bound_call.in, handle);
  PendingCall& slot = pending(handle);
  slot.back.insert(slot.back.end(), bound_call.back.begin(), bound_call.back.end());
  if (bound_call.staged) slot.staged.push_back(bound_call.staged);
  begin(bound_call.call, handle);
}

void CommunicatorCore::begin(const Call& call, CallHandle handle) {
  try {
    if (call.limit == options_.timeout) [[likely]] {
      pending(handle).tickets.push_back(engine_->start(call));
    } else {  // The call was planned under another timeout.
      Call now = call;
      now.limit = options_.timeout;
      pending(handle).tickets.push_back(engine_->start(now));
    }
  } catch (...) {
    release(handle);
    throw;
  }
}

CallHandle CommunicatorCore::take_slot(Origin origin) {
  say_reason();
  if (free_.empty()) {
    pending_calls_.push_back(std::make_unique<PendingCall>());
    free_.reserve(pending_calls_.size());
    free_.push_back(pending_calls_.size() - 1);
  }
  const std::size_t at = free_.back();
  free_.pop_back();
  PendingCall& slot = *pending_calls_[at];
  slot.busy = true;
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

void CommunicatorCore::release(CallHandle handle) {
  PendingCall& slot = pending(handle);
  slot.busy = false;
  if (engine_->keeps_memory()) keep_memory(slot);
  slot.staged.clear();
  free_.push_back(handle.slot);
}

bool CommunicatorCore::test(CallHandle handle, Origin origin, bool& over) {
  const ExclusiveUse use(*this, origin);
  over = true;  // This holds unless it is set otherwise below.
  refuse_if_closed();
  PendingCall& slot = pending(handle);
  try {
    while (slot.done < slot.tickets.size()) {
      if (!engine_->test(slot.tickets[slot.done])) {
        over = false;
        return false;
      }
      ++slot.done;
    }
    if (!reached(handle)) {
      over = false;
      return false;
    }
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
  return true;
}

void CommunicatorCore::wait(CallHandle handle, Origin origin, bool& over) {
  const ExclusiveUse use(*this, origin);
  over = true;
  refuse_if_closed();
  wait_inside(handle);
}

void CommunicatorCore::wait_inside(CallHandle handle) {
  PendingCall& slot = pending(handle);
  try {
    for (; slot.done < slot.tickets.size(); ++slot.done) engine_->wait(slot.tickets[slot.done]);
    wait_for_gpus(handle);
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
}

void CommunicatorCore::finish(CallHandle handle) {
  try {
    or_refuse([&] { copy_back(pending(handle).back); });
  } catch (...) {
    release(handle);
    throw;
  }
  release(handle);
}

void CommunicatorCore::drop(CallHandle handle) noexcept {
  const ExclusiveUse use(*this);
  if (closed_) return;
  if (!use.inside()) {
    engine_->log().error(text("a request of \"", options_.name,
                              "\" was destroyed inside another call of the same communicator; it stays under way"));
    return;
  }
  PendingCall& slot = pending(handle);
  if (!slot.marks.empty() && !slot.in_stream)
    engine_->refuse(Error(Code::usage,
                          text("a request of a call on GPUs on \"", options_.name, "\", started at ",
                               place(slot.origin), ", was destroyed before it was waited for"),
                          "keep every request, and wait for it"));
  for (; slot.done < slot.tickets.size(); ++slot.done) engine_->drop(slot.tickets[slot.done]);
  release(handle);
}

void CommunicatorCore::refuse(const Error& error) noexcept {
  if (!closed_) engine_->refuse(error);
}

// Keeps staging memory that the transport may still use.
void CommunicatorCore::keep_memory(PendingCall& slot) {
  for (auto& each : slot.staged) keep_for_ever(each);
  keep_for_ever(std::make_shared<std::vector<std::byte>>(std::move(slot.staging)));
  slot.staging = {};
}

// Ends the process by the error's exit code if a session handles it, because the call's memory would be gone.
void CommunicatorCore::refuse_end_inside() const {
  throw Error(Code::usage,
              text("communicator \"", options_.name,
                   "\" was destroyed inside one of its own calls: by the user's reduction, or by another thread"),
              "destroy a communicator after its calls have returned");
}

void CommunicatorCore::close() noexcept {
  const CancellationDeferred deferred;
  if (closed_) return;
  if (engine_->is_occupied()) refuse_end_inside();
  closed_ = true;
  end_levels();
  end_nccl();
  end_streams();
  engine_->close();
  if (engine_->keeps_memory()) {
    for (auto& slot : pending_calls_) keep_memory(*slot);
    keep_for_ever(votes_);
    keep_for_ever(times_);
  }
  engine_.reset();
}

CommunicatorCore::~CommunicatorCore() { close(); }

}  // namespace lockstep::detail
