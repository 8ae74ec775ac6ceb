// SPDX-License-Identifier: Apache-2.0
// Starts, advances and ends the calls of a Core.
#include "collectives/engine/core.hpp"

#include <algorithm>

#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep {
namespace {

// Folds 64 bits of a hash into 32.
constexpr std::uint32_t fold(std::uint64_t value) { return static_cast<std::uint32_t>(value ^ value >> 32U); }

// Mixes a value into a hash.
constexpr std::uint64_t stir(std::uint64_t value, std::uint64_t more) {
  value = (value ^ more) * 0xff51afd7ed558ccdU;
  return value ^ value >> 33U;
}

// Returns the most messages that a round of the plan sends, or receives.
std::size_t most_messages(const Plan& plan) {
  std::size_t most = 0;
  for (const Schedule* schedule : {&plan.schedule, &plan.last}) {
    for (const Round& round : schedule->rounds) most = std::max({most, round.sends.size(), round.receives.size()});
  }
  return most;
}

}  // namespace

Core::Core(Transport& transport, Patience patience, Log log, std::string name, node::Room* room,
           const node::PollLimits& looks, bool is_seen, std::uint64_t id, Members members)
    : transport_(transport),
      patience_(patience),
      log_(std::move(log)),
      name_(std::move(name)),
      rank_(transport.rank()),
      size_(transport.size()),
      id_(id),
      runner_(transport, room, looks),
      agreement_(rank_, size_),
      members_(std::move(members)) {
  left_.resize(static_cast<std::size_t>(size_));
  requested_.resize(static_cast<std::size_t>(size_));
  call_hash_ = transport.generation();
  if (is_seen) status_ = status::claim_status(name_, rank_, size_, id);
  notes_ = status::MemberNotes(status_, members_, size_);
  track_ = timeline::take_track(name_, rank_, size_, id);
}

Core::~Core() {
  leave_track();
  notes_.clear();
  status::give_back(status_);
  if (!keeps_memory_) return;
  for (auto& slot : slots_) keep_for_ever(std::shared_ptr<Operation>(std::move(slot)));
}

CallTicket Core::start(const Call& call) {
  check_usable();
  if (call.plan->size != size_ || call.plan->index != rank_)
    throw Error(Code::internal, text("a plan for another communicator was given to \"", name_, '"'));
  PlanEntry& prepared = prepare(call.plan);
  if (call.plan->in_node) make_home(prepared, call);
  Operation& operation = take_slot();
  operation.call = call;
  operation.signature = prepared.signature;
  operation.most_messages = prepared.most_messages;
  operation.quiet = {};
  operation.answers.clear();
  operation.agreements_missing = operation.agreements_held = 0;
  operation.state = OperationState::flying;
  guarded([&] {
    listen();
    if (failed()) return;
    active_.push_back(&operation);
    number(operation, prepared);
    runner_.enlist(operation);
    move(operation);
  });
  if (failed()) operation.state = OperationState::failed;
  sweep();
  const CallTicket ticket{operation.slot, operation.generation, operation.signature.collective, call.origin};
  if (failed()) take(ticket);  // throws
  return ticket;
}

// Makes the operation that repeats a plan. Other calls under way decide if a call is repeated there. But its memory is
// taken with the first call, so that later calls allocate nothing.
void Core::make_home(PlanEntry& prepared, const Call& call) {
  if (prepared.home == nullptr) {
    prepared.home = &take_slot();
    prepared.home->at_home = true;
  }
  Operation& home = *prepared.home;
  if (home.state != OperationState::unused || home.call.plan == call.plan) return;
  home.call.plan.reset();  // another plan had this entry, and is not repeated any more
  home.work.reserve(call);
}

// Numbers the call, and derives its call tag.
inline void Core::set_call_tag(Operation& operation, const PlanEntry& prepared) {
  operation.number = ++last_started_;
  // The tag covers all calls so far. So data never matches again after a call in which members differed unseen: a call
  // that only sends ends without hearing of the others.
  call_hash_ = stir(stir(call_hash_, prepared.kind), operation.number);
  operation.call_tag = fold(call_hash_);
  if (track_) operation.begun_ns = timeline::now_ns();
  CallRecord& recorded = call_history_.add(operation.number);
  recorded.origin = operation.call.origin;
  static_assert(CallHistory::length == status::calls_kept);
  const bool is_same = recorded.plan == operation.call.plan;
  if (status_ != nullptr) status_->begin(operation.number, operation.signature, recorded.origin, is_same);
  if (is_same) return;
  recorded.signature = operation.signature;
  recorded.plan = operation.call.plan;
}

// Returns the plan's entry if the call repeats a plan and nothing else is under way. Returns null otherwise.
Core::PlanEntry* Core::repeated(const Call& call) {
  PlanEntry& known = last_repeated_->plan == call.plan ? *last_repeated_ : place_of(call.plan);
  const bool fits = known.plan == call.plan && call.plan->in_node && known.agreed == agreement_.forgotten() + 1 &&
                    active_.empty() && !failed() && !anybody_left_ && !agreement_.keeps_any();
  return fits ? &known : nullptr;
}

std::optional<CallTicket> Core::run(const Call& call) {
  PlanEntry* const known = repeated(call);
  if (known == nullptr) return start(call);
  PlanEntry& prepared = *known;
  last_repeated_ = known;
  Operation& operation = *prepared.home;
  const bool same = operation.call.plan == call.plan;
  if (same) {
    operation.call.input = call.input;
    operation.call.output = call.output;
    operation.call.origin = call.origin;
  } else {
    operation.call = call;
    operation.signature = prepared.signature;
    operation.most_messages = 0;
  }
  operation.state = OperationState::flying;
  moving_ = &operation;
  guarded([&] {
    set_call_tag(operation, prepared);
    if (same) {
      runner_.repeat(operation);
    } else {
      runner_.enlist(operation);
      runner_.advance(operation);
    }
    moving_ = nullptr;
  });
  if (operation.state != OperationState::finished) {
    operation.call.limit = call.limit;
    return keep(operation);
  }
  finish(operation);
  operation.state = OperationState::unused;
  return std::nullopt;
}

// Makes an unfinished repeated call an active one, since it has to wait.
CallTicket Core::keep(Operation& operation) {
  operation.quiet = {};
  operation.answers.clear();
  operation.agreements_missing = operation.agreements_held = 0;
  const CallTicket ticket{operation.slot, operation.generation, operation.signature.collective, operation.call.origin};
  if (failed()) {
    operation.state = OperationState::failed;
    take(ticket);  // throws
  }
  active_.push_back(&operation);
  return ticket;
}

Core::PlanEntry& Core::place_of(const std::shared_ptr<const Plan>& plan) {
  const auto address = reinterpret_cast<std::uintptr_t>(plan.get());
  return plan_entries_[stir(0, address) % plan_entries_.size()];
}

Core::PlanEntry& Core::prepare(const std::shared_ptr<const Plan>& plan) {
  PlanEntry& known = place_of(plan);
  if (known.plan != plan) {
    known.agreed = 0;
    known.plan = plan;
    known.signature = signature_of(plan->stands_for ? *plan->stands_for : plan->spec);
    known.kind = stir(hash(known.signature), plan->choice_number());
    known.most_messages = most_messages(*plan);
  }
  return known;
}

void Core::number(Operation& operation, PlanEntry& prepared) {
  if (operation.is_exchange()) {
    operation.number = ++last_exchange_;
    if (status_ != nullptr) status_->exchanges.store(last_exchange_, std::memory_order_relaxed);
    operation.call_tag = static_cast<std::uint32_t>(operation.plan().spec.root);  // an exchange uses the message's tag
    return;
  }
  set_call_tag(operation, prepared);
  if (anybody_left_) check_present(operation);
  if (size_ > 1 && agreement_.first_use(prepared.kind)) agree(operation, *call_history_.find(operation.number));
  prepared.agreed = agreement_.forgotten() + 1;
  for (const auto& [peer, theirs] : agreement_.take_kept(operation.number)) {
    compare(peer, theirs);
    operation.agreements_missing &= ~agreement_.bit_of(peer);
  }
}

// Tells the call to the listeners, even if all of theirs have come.
void Core::agree(Operation& operation, const CallRecord& recorded) {
  operation.agreements_missing = operation.agreements_held = agreement_.everybody_asked();
  const ControlMessage message = AgreeMessage{description_of(recorded)};
  for (const int peer : agreement_.listeners()) tell(peer, message);
  send_off(operation);
}

// Notes which control messages are on their way. A member must not leave the call while its control messages wait for a
// connection. Otherwise it could wait for something else, and keep others waiting for them.
bool Core::send_off(Operation& operation) {
  const std::uint32_t before = operation.agreements_held;
  for (std::size_t k = 0; k < agreement_.listeners().size(); ++k) {
    const std::uint32_t bit = std::uint32_t{1} << k;
    if ((before & bit) != 0 && transport_.is_said(agreement_.listeners()[k])) operation.agreements_held &= ~bit;
  }
  return operation.agreements_held != before;
}

Operation& Core::take_slot() {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.push_back(std::make_unique<Operation>());
    slots_.back()->slot = free_slots_.back();
    active_.reserve(slots_.size());
  }
  Operation& operation = *slots_[free_slots_.back()];
  free_slots_.pop_back();
  return operation;
}

void Core::release(Operation& operation) {
  operation.state = OperationState::unused;
  ++operation.generation;
  if (operation.at_home) return;  // the plan may be repeated
  operation.call.plan.reset();
  operation.call.pieces.reset();
  free_slots_.push_back(operation.slot);
}

Operation& Core::operation_of(const CallTicket& ticket) const {
  if (ticket.slot < slots_.size()) {
    Operation& operation = *slots_[ticket.slot];
    if (operation.generation == ticket.generation && operation.state != OperationState::unused) return operation;
  }
  throw Error(Code::usage,
              text("a request of \"", name_, "\" was waited for that had already been finished: of ",
                   to_string(ticket.collective), " at ", place(ticket.origin)),
              "wait for a request once, and only on the communicator that made it");
}

bool Core::is_over(const CallTicket& ticket) const { return operation_of(ticket).state != OperationState::flying; }

void Core::take(const CallTicket& ticket) {
  Operation& operation = operation_of(ticket);
  const bool finished = operation.state == OperationState::finished;
  release(operation);
  if (finished) return;
  told_user_ = true;
  std::rethrow_exception(error_);
}

bool Core::turn(bool listening) {
  bool moved = false;
  if (failed()) return moved;
  runner_.end_if_given_up();
  guarded([&] {
    if (listening || std::ranges::any_of(active_, &Operation::is_agreeing)) moved = listen();
    for (Operation* operation : active_) moved |= operation->agreements_held != 0 && send_off(*operation);
    for (Operation* operation : active_) moved |= move(*operation);
  });
  if (moved || failed()) sweep();
  return moved;
}

bool Core::move(Operation& operation) {
  if (failed()) return false;
  moving_ = &operation;
  const bool moved = runner_.advance(operation);
  moving_ = nullptr;
  if (moved && operation.quiet.since != StallWatch::unknown) wait_anew(operation);
  if (operation.state == OperationState::finished && !operation.is_exchange()) finish(operation);
  return moved;
}

// Restarts the operation's patience after something has moved.
void Core::wait_anew(Operation& operation) {
  operation.quiet = {};
  if (status_ != nullptr) status_->wait_no_more();
}

// Returns the number up to which all calls are finished. Calls may end in another order than they began.
std::uint64_t Core::all_finished() const {
  std::uint64_t all = last_finished_;
  for (const Operation* each : active_) {
    if (each->state == OperationState::flying && !each->is_exchange()) all = std::min(all, each->number - 1);
  }
  return all;
}

inline void Core::finish(const Operation& operation) {
  call_history_.finish(operation.number);
  last_finished_ = std::max(last_finished_, operation.number);
  if (status_ != nullptr) status_->finish(all_finished());
  if (track_) [[unlikely]]
    track_->add(operation.number, operation.begun_ns, timeline::now_ns(), operation.signature, operation.call.origin);
}

// Removes finished calls from the list.
void Core::sweep() {
  std::erase_if(active_, [](const Operation* each) { return each->state != OperationState::flying; });
}

}  // namespace lockstep
