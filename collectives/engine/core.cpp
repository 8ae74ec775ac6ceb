// SPDX-License-Identifier: Apache-2.0
// Starts, advances and ends the calls of a Core.
#include "collectives/engine/core.hpp"

#include <algorithm>
#include <utility>

#include "topology/base/progress_hooks.hpp"

namespace lockstep {

Core::Core(Transport& transport, CommunicatorIdentity identity, WaitLimits wait_limits, Log log, node::Room* room,
           const node::PollLimits& poll_limits, bool is_published)
    : transport_(transport),
      identity_(std::move(identity)),
      log_(std::move(log)),
      runner_(transport, room, poll_limits),
      agreement_(identity_.rank, identity_.size),
      history_(identity_, transport.generation()),
      departed_(identity_),
      publisher_(identity_, log_, is_published),
      stalls_(identity_, transport, {operations_, runner_, agreement_, departed_}, publisher_, log_, wait_limits),
      failure_(identity_, log_, {transport, runner_, operations_, publisher_}),
      dispatcher_(identity_, {transport, operations_, agreement_, history_, departed_, publisher_, stalls_, failure_}) {
}

Core::~Core() {
  if (failure_.keeps_memory()) operations_.keep_memory();
}

// Begins a call in a slot of its own.
CallTicket Core::start_anew(const Call& call) {
  failure_.check();
  if (call.plan->size != identity_.size || call.plan->index != identity_.rank)
    throw Error(Code::internal, text("a plan for another communicator was given to \"", identity_.name, '"'));
  PlanFacts& entry = plan_facts_.prepare(call.plan);
  if (call.plan->in_node) reserve_operation(entry, call);
  Operation& operation = operations_.acquire();
  operation.call = call;
  operation.signature = entry.signature;
  operation.most_messages = entry.most_messages;
  operation.stall = {};
  operation.answers.clear();
  operation.agreements_missing = operation.agreements_held = 0;
  operation.state = OperationState::in_flight;
  guarded([&] {
    if (!operation.is_message() || needs_control()) dispatcher_.receive();
    if (failure_.has_failed()) return;
    operations_.activate(operation);
    begin(operation, entry);
    runner_.enlist(operation);
    move(operation);
  });
  if (failure_.has_failed()) operation.state = OperationState::failed;
  operations_.sweep();
  const CallTicket ticket = OperationTable::ticket_of(operation);
  if (failure_.has_failed()) take(ticket);  // throws
  return ticket;
}

// Makes the operation that repeats a plan. Other calls under way decide if a call is repeated there. But its memory is
// taken with the first call, so that later calls allocate nothing.
void Core::reserve_operation(PlanFacts& entry, const Call& call) {
  if (entry.reserved_operation == nullptr) {
    entry.reserved_operation = &operations_.acquire();
    entry.reserved_operation->is_reserved = true;
  }
  Operation& reserved = *entry.reserved_operation;
  if (reserved.state != OperationState::unused || reserved.call.plan == call.plan) return;
  reserved.call.plan.reset();  // another plan had this entry, and is not repeated any more
  reserved.node_collective.reserve(call);
}

// Returns the plan's entry if the call repeats a plan, and neither another call nor the plan's last one is under way.
// Returns null otherwise, and if a buffer may be on a GPU.
PlanFacts* Core::repeated(const Call& call) {
  PlanFacts& known = plan_facts_.find(call.plan);
  const bool fits = known.plan == call.plan && call.plan->in_node && known.agreed == agreement_.times_forgotten() + 1 &&
                    operations_.is_idle() && !failure_.has_failed() && !departed_.has_any() &&
                    !agreement_.keeps_any() && known.reserved_operation->state == OperationState::unused &&
                    (call.is_on_host || gpu::backend() == nullptr);
  return fits ? &known : nullptr;
}

// Runs a call in the slot of its plan, as far as it goes with these looks. The state says if it is finished.
inline Operation& Core::repeat(PlanFacts& known, const Call& call, node::PollLimits poll_limits,
                               CancellationDeferral* cancellation) {
  plan_facts_.set_last_repeated(known);
  Operation& operation = *known.reserved_operation;
  const bool only_buffers = call.has_only_buffers();
  const bool same = operation.call.plan == call.plan && only_buffers && operation.has_only_buffers;
  if (same) {
    operation.call.input = call.input;
    operation.call.output = call.output;
    operation.call.origin = call.origin;
  } else {
    operation.call = call;
    operation.has_only_buffers = only_buffers;
    operation.signature = known.signature;
    operation.most_messages = 0;
  }
  operation.state = OperationState::in_flight;
  advancing_ = &operation;
  if (cancellation != nullptr && !(same && runner_.only_looks(operation))) cancellation->begin();
  guarded([&] {
    number(operation, known);
    if (same) {
      runner_.repeat(operation, poll_limits);
    } else {
      runner_.enlist(operation);
      runner_.advance(operation);
    }
    advancing_ = nullptr;
  });
  if (operation.state == OperationState::finished)
    finish(operation);
  else
    operation.call.limit = call.limit;
  return operation;
}

std::optional<CallTicket> Core::start(const Call& call, bool waits, CancellationDeferral* cancellation) {
  PlanFacts* const known = repeated(call);
  if (known == nullptr) {
    if (cancellation != nullptr) cancellation->begin();
    return start_anew(call);
  }
  const node::PollLimits& most = runner_.poll_limits();
  Operation& operation = repeat(*known, call, waits ? most : node::PollLimits{most.spins, 0}, cancellation);
  if (operation.state != OperationState::finished) return keep(operation);
  operation.state = OperationState::unused;
  return std::nullopt;
}

bool Core::needs_control() {
  constexpr unsigned most = 32;  // a guess
  if (++messages_since_control_ < most) return false;
  messages_since_control_ = 0;
  return true;
}

// Now and then this member must hear the others, whose questions it would not answer otherwise.
void Core::try_messages(std::span<MessageAttempt> sends, std::span<MessageAttempt> receives,
                        node::PollLimits poll_limits) {
  if (failure_.has_failed() || departed_.has_any() || !runner_.has_posted_all_messages()) return;
  guarded([&] {
    if (needs_control()) dispatcher_.receive();
    if (failure_.has_failed() || departed_.has_any()) return;
    std::uint64_t done = 0;
    for (MessageAttempt& send : sends) {  // those behind one that has to wait keep their order
      send.is_done = transport_.try_send(send.peer, send.call_tag, send.data, send.bytes, !receives.empty());
      if (!send.is_done) break;
      ++done;
    }
    // A message that must wait is posted before this member waits for others.
    if (done < sends.size()) poll_limits = {};
    if (!receives.empty()) node::poll(poll_limits, [&] { return try_receives(receives); });
    for (const MessageAttempt& receive : receives) done += receive.is_done ? 1 : 0;
    if (done > 0) publisher_.begin_message(history_.add_messages(done));
  });
}

// Returns true if more looks are useless. Of messages with one tag from one member, the first comes first. The next
// message from a member may be that of a later attempt.
bool Core::try_receives(std::span<MessageAttempt> receives) {
  for (;;) {
    bool moved = false;
    bool is_stuck = false;
    bool waits = false;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      MessageAttempt& receive = receives[i];
      if (receive.is_done) continue;
      const bool is_behind = std::ranges::any_of(receives.first(i), [&](const MessageAttempt& earlier) {
        return !earlier.is_done && earlier.peer == receive.peer && earlier.call_tag == receive.call_tag;
      });
      if (is_behind) continue;
      const TryResult result = transport_.try_receive(receive.peer, receive.call_tag, receive.data, receive.bytes);
      receive.is_done = result == TryResult::done;
      moved = moved || receive.is_done;
      is_stuck = is_stuck || result == TryResult::needs_lane;
      waits = waits || result == TryResult::nothing_came;
    }
    if (!moved || !is_stuck) return is_stuck || !waits;
  }
}

// Makes an unfinished repeated call an active one, since it has to wait.
CallTicket Core::keep(Operation& operation) {
  operation.stall = {};
  operation.answers.clear();
  operation.agreements_missing = operation.agreements_held = 0;
  const CallTicket ticket = OperationTable::ticket_of(operation);
  if (failure_.has_failed()) {
    operation.state = OperationState::failed;
    take(ticket);  // throws
  }
  operations_.activate(operation);
  return ticket;
}

// Numbers a collective call, and gives it its call tag.
inline void Core::number(Operation& operation, const PlanFacts& entry) {
  const bool is_same = history_.begin(operation, entry.kind);
  publisher_.begin(operation, is_same);
}

// Numbers any call. Members that make a collective call of this kind for the first time begin to compare it.
void Core::begin(Operation& operation, PlanFacts& entry) {
  if (operation.is_message()) {
    history_.begin_message(operation);
    publisher_.begin_message(operation.number);
    return;
  }
  number(operation, entry);
  if (departed_.has_any()) departed_.check(operation);
  if (identity_.size > 1 && agreement_.first_use(entry.kind)) agree(operation);
  entry.agreed = agreement_.times_forgotten() + 1;
  for (const auto& [peer, theirs] : agreement_.take_kept(operation.number)) {
    history_.compare(peer, theirs);
    operation.agreements_missing &= ~agreement_.bit_of(peer);
  }
}

// Tells the call to the listeners, even if all of theirs have come.
void Core::agree(Operation& operation) {
  operation.agreements_missing = operation.agreements_held = agreement_.all_source_bits();
  const Bytes message = to_bytes(AgreeMessage{history_.describe(operation.number)});
  for (const int peer : agreement_.targets()) transport_.send_control(peer, message);
  send_agreements(operation);
}

// Notes which control messages are on their way. A member must not leave the call while its control messages wait for a
// connection. Otherwise it could wait for something else, and keep others waiting for them.
bool Core::send_agreements(Operation& operation) {
  const std::uint32_t before = operation.agreements_held;
  for (std::size_t k = 0; k < agreement_.targets().size(); ++k) {
    const std::uint32_t bit = std::uint32_t{1} << k;
    if ((before & bit) != 0 && transport_.is_control_sent(agreement_.targets()[k])) operation.agreements_held &= ~bit;
  }
  return operation.agreements_held != before;
}

Operation& Core::operation_of(const CallTicket& ticket) const {
  if (Operation* const operation = operations_.find(ticket)) return *operation;
  throw Error(Code::usage,
              text("a request of \"", identity_.name, "\" was waited for that had already been finished: of ",
                   to_string(ticket.collective), " at ", place(ticket.origin)),
              "wait for a request once, and only on the communicator that made it");
}

bool Core::is_over(const CallTicket& ticket) const { return operation_of(ticket).state != OperationState::in_flight; }

void Core::take(const CallTicket& ticket) {
  Operation& operation = operation_of(ticket);
  const bool finished = operation.state == OperationState::finished;
  operations_.release(operation);
  if (!finished) failure_.raise();
}

bool Core::progress(bool receives_control) {
  bool moved = false;
  if (failure_.has_failed()) return moved;
  runner_.end_if_given_up();
  guarded([&] {
    const std::vector<Operation*>& active = operations_.active();
    if (receives_control || std::ranges::any_of(active, &Operation::is_agreeing)) moved = dispatcher_.receive();
    for (Operation* operation : active) moved |= operation->agreements_held != 0 && send_agreements(*operation);
    for (Operation* operation : active) moved |= move(*operation);
  });
  if (moved || failure_.has_failed()) operations_.sweep();
  return moved;
}

bool Core::move(Operation& operation) {
  if (failure_.has_failed()) return false;
  advancing_ = &operation;
  const bool moved = runner_.advance(operation);
  advancing_ = nullptr;
  if (moved && operation.stall.since != StallWatch::unknown) stalls_.restart(operation);
  if (operation.state == OperationState::finished && !operation.is_message()) finish(operation);
  return moved;
}

inline void Core::finish(const Operation& operation) {
  history_.finish(operation.number);
  publisher_.finish(operation, operations_.finished_up_to(history_.last_finished()));
}

void Core::watch(const CallTicket& ticket, Duration now) {
  if (failure_.has_failed()) return;
  Operation& operation = operation_of(ticket);
  if (operation.state != OperationState::in_flight) return;
  guarded([&] { stalls_.watch(operation, now); });
}

void Core::drop(const CallTicket& ticket) noexcept {
  guarded([&] {
    Operation& operation = operation_of(ticket);
    if (!failure_.has_failed()) fail_dropped(describe(operation), operation.call.origin);
    operations_.release(operation);
  });
  operations_.sweep();
}

void Core::drop(std::string_view call, const Origin& origin) noexcept {
  guarded([&] {
    if (!failure_.has_failed()) fail_dropped(call, origin);
  });
  operations_.sweep();
}

void Core::fail_dropped(std::string_view call, const Origin& origin) {
  const std::string at = place(origin);
  failure_.fail_unfinished(
      text("the request of ", call, " on \"", identity_.name, at.empty() ? "\"" : text("\", started at ", at, ',')),
      " was destroyed before it was waited for", "keep every request, and wait for it");
}

void Core::leave() noexcept {
  Bytes last_message;
  guarded([&] {
    if (!failure_.has_failed() && !operations_.is_idle()) {
      const std::size_t count = operations_.active().size();
      const Operation& first = *operations_.active().front();
      failure_.fail_unfinished(text("the communicator \"", identity_.name, '"'),
                               text(" was destroyed with ", count, count == 1 ? " call" : " calls",
                                    " in flight, first ", describe(first), " started at ", place(first.call.origin)),
                               "wait for every request before the communicator ends");
    }
    if (failure_.has_failed()) return;  // the others already know that it failed
    constexpr std::uint64_t told = 4;   // for members that wait in a different call
    last_message = to_bytes(LeaveMessage{history_.last_started(), history_.describe_last(told)});
  });
  guarded([&] { transport_.leave(last_message); });
}

std::vector<Transport::ReceivedControl> Core::begin_shrinking() {
  stop_outside_progress();  // whatever was the first failure
  failure_.refuse(Error(Code::peer_failed,
                        text("rank ", identity_.rank, " makes a smaller communicator of \"", identity_.name, '"'),
                        "shrink() on all members"));
  return dispatcher_.take_survive_messages();
}

}  // namespace lockstep
