// SPDX-License-Identifier: Apache-2.0
// Exchanges control messages with other members: agreement, answers, failures and departures. Also watches calls that
// wait too long.
#include <algorithm>

#include "collectives/engine/core.hpp"
#include "collectives/engine/status_reader.hpp"

namespace lockstep {
namespace {

// Returns the end of the place, short enough to leave room for the ranks that are waited for.
std::string short_place(const Origin& origin) {
  constexpr std::size_t most = 60;
  const std::string at = place(origin);
  return at.empty() ? at : text(" at ", at.substr(at.size() - std::min(at.size(), most)));
}

}  // namespace

bool Core::listen() {
  bool heard = false;
  while (!failed()) {
    const std::optional<Transport::SmallMessage> next = transport_.hear();
    if (!next) break;
    heard = true;
    ControlMessage message;
    try {
      message = parse_control_message(next->bytes);
    } catch (const Error& error) {
      throw Error(Code::bad_message, text("what ", members_.name_of(next->peer), " told \"", name_,
                                          "\" cannot be read: ", error.detail()));
    }
    notes_.heard(next->peer);
    std::visit([&](const auto& one) { hear(next->peer, one); }, message);
  }
  if (status_ != nullptr && status_->is_requested()) [[unlikely]]
    ask_as_requested();
  return heard;
}

void Core::hear(int peer, const AgreeMessage& message) {
  if (message.call.number > last_started_) {
    agreement_.keep(peer, message.call);
    return;
  }
  compare(peer, message.call);
  for (Operation* operation : active_) {
    if (operation->is_exchange() || operation->number != message.call.number) continue;
    operation->agreements_missing &= ~agreement_.bit_of(peer);
    wait_anew(*operation);
  }
}

void Core::hear(int peer, const AskMessage& message) {
  AnswerMessage answer{.number = message.number, .last_finished = last_finished_};
  for (const Operation* operation : active_) {
    if (operation->is_exchange()) continue;
    answer.oldest_in_flight = operation->number;
    break;
  }
  const CallRecord* recorded = call_history_.find(message.number);
  if (recorded != nullptr) {
    answer.progress = recorded->finished ? CallProgress::finished : CallProgress::in_it;
    answer.call.push_back(description_of(*recorded));
  } else if (message.number <= last_started_) {
    answer.progress = CallProgress::forgotten;
  }
  // The answer also lists the calls before it. If members differed in a call that all have finished, their later calls
  // never match.
  constexpr std::uint64_t told = 16;
  std::uint64_t before = std::min(message.number == 0 ? last_started_ : message.number - 1, last_started_);
  for (std::uint64_t i = 0; i < told && before > 0; ++i, --before) {
    if (const CallRecord* earlier = call_history_.find(before)) answer.call.push_back(description_of(*earlier));
  }
  tell(peer, answer);
}

void Core::hear(int peer, const AnswerMessage& message) {
  notes_.answered(peer, message.last_finished, message.oldest_in_flight);
  if (message.number == 0) requested_[static_cast<std::size_t>(peer)] = false;
  for (const CallDescription& call : message.call) compare(peer, call);
  for (Operation* operation : active_) {
    const std::uint64_t asked = operation->is_exchange() ? 0 : operation->number;
    if (message.number == asked && !operation->answers.empty())
      operation->answers[static_cast<std::size_t>(peer)] = message;
  }
}

void Core::hear(int peer, const FailMessage& message) {
  const Error error = message.code == Code::mismatch
                          ? Error(Code::mismatch, message.text)
                          : Error(Code::peer_failed, text("rank ", peer, ": ", message.text));
  fail(std::make_exception_ptr(error), {error.code(), std::string(error.detail())}, false);
}

void Core::hear(int peer, const LeaveMessage& message) {
  left_[static_cast<std::size_t>(peer)] = message.last_started;
  anybody_left_ = true;
  notes_.left(peer, message.last_started);
  for (const CallDescription& call : message.last) compare(peer, call);
  for (const Operation* operation : active_) check_present(*operation);
}

// Throws if a member left before the call, which can then never complete.
void Core::check_present(const Operation& operation) {
  if (operation.is_exchange()) return;
  for (std::size_t peer = 0; peer < left_.size(); ++peer) {
    const auto& left = left_[peer];
    if (!left || *left >= operation.number) continue;
    throw Error(Code::peer_failed,
                text(members_.name_of(static_cast<int>(peer)), " left \"", name_, "\" after ",
                     *left == 0 ? "no call" : text("call ", *left), ", and is not in ", describe(operation)),
                "let all members make the same calls before they end the communicator");
  }
}

void Core::compare(int peer, const CallDescription& theirs) {
  const CallRecord* recorded = call_history_.find(theirs.number);
  if (recorded == nullptr) return;
  if (recorded->signature == theirs.signature && recorded->plan->choice_number() == theirs.choice_number) return;
  throw different_calls(name_, peer, theirs, rank_, description_of(*recorded), members_);
}

CallDescription Core::description_of(const CallRecord& recorded) const {
  return {recorded.number, recorded.signature, recorded.plan->choice_number(), recorded.plan->algorithm,
          place(recorded.origin)};
}

void Core::tell(int peer, const ControlMessage& message) { transport_.tell(peer, to_bytes(message)); }

void Core::tell_all(const ControlMessage& message) { transport_.tell_all(to_bytes(message)); }

void Core::watch(const CallTicket& ticket, Duration now) {
  if (failed()) return;
  Operation& operation = operation_of(ticket);
  if (operation.state != OperationState::flying) return;
  const Duration limit = operation.call.limit > Duration{} ? operation.call.limit : patience_.limit;
  guarded([&] { look(what_it_waits_for(operation), limit, now); });
}

// Returns the operation, or an earlier one that holds its lane or the room.
Operation& Core::what_it_waits_for(Operation& operation) {
  if (operation.is_agreeing()) return operation;
  if (operation.begun && !Runner::waits_for_its_turn(operation)) return operation;
  for (Operation* earlier : active_) {
    if (earlier == &operation) break;
    if (runner_.is_ahead(*earlier, operation)) return *earlier;
  }
  return operation;
}

void Core::look(Operation& operation, Duration limit, Duration now) {
  using std::chrono::milliseconds;
  StallWatch& quiet = operation.quiet;
  // `soon` is also the time before a warning at which all are asked, so that they can answer.
  Duration soon = milliseconds(100);
  for (const Duration each : {patience_.warn, limit}) {
    if (each > Duration{}) soon = std::min(soon, each / 4);
  }
  if (quiet.since == StallWatch::unknown) {
    quiet = {.since = now, .looked = now, .next_ask = now + soon, .ask_gap = soon};
    operation.answers.clear();
  }
  // Time in which this member did not look (it computed, or was stopped) does not count against the others.
  const Duration unseen = now - quiet.looked - std::chrono::seconds(1);
  if (unseen > Duration{}) quiet.since += unseen;
  quiet.looked = now;

  const Duration lasted = now - quiet.since;
  const auto reaches = [&](Duration end, Duration before) { return end > Duration{} && lasted >= end - before; };
  if (now >= quiet.next_ask) {
    const IndexSet peers = direct_peers(operation);
    ask(operation, peers, false);
    write_what_is_waited_for(operation, peers);
    quiet.ask_gap = std::min<Duration>(2 * quiet.ask_gap, milliseconds(1600));
    quiet.next_ask = now + quiet.ask_gap;
  }
  if (lasted >= std::chrono::seconds(1) || reaches(limit, soon)) refuse_if_in_another(operation);
  const auto ask_all_at = [&](Duration end, bool& asked) {
    if (!reaches(end, soon) || std::exchange(asked, true)) return;
    ask(operation, all_peers(operation), true);
    quiet.asked = now;
  };
  ask_all_at(patience_.warn, quiet.asked_for_warning);
  ask_all_at(limit, quiet.asked_for_limit);
  if (now - quiet.asked < soon) return;  // leaves the members time to answer
  if (reaches(limit, {})) throw stalled(operation, lasted, limit != patience_.limit);
  if (!reaches(patience_.warn, {}) || std::exchange(quiet.warned, true)) return;
  log_.warn(text(id(Code::stall), " a wait is long: ", standing(operation, lasted),
                 limit == Duration{} ? "; it goes on" : text("; it goes on until ", format_duration(limit)),
                 " -> look what those members do"));
}

// Throws if a member of the node is in another call. Such a member usually says which call when it is asked. But the
// root of a broadcast may have left its call, and be in none in which it would answer.
void Core::refuse_if_in_another(const Operation& operation) const {
  const IndexSet others = runner_.in_another(operation);
  if (others.empty()) return;
  throw Error(
      Code::mismatch,
      text("members of \"", name_, "\" made different calls: ", members_.name_of(others), " made another one than ",
           describe(operation), " at ", place(operation.call.origin), " and did not answer which"),
      "let all members make the same calls with the same counts, types, operations and roots in the same order, "
      "and replicas change the same variables in the same order");
}

// Publishes the present wait. Names the call only if it is not the last one, which readers know from its entry.
void Core::write_what_is_waited_for(const Operation& operation, const IndexSet& peers) {
  if (status_ == nullptr) return;
  const bool is_last = !operation.is_exchange() && operation.number == last_started_;
  const std::string call = is_last ? "" : text(describe(operation), short_place(operation.call.origin), ", ");
  status_->waits.write(text(call, Runner::where(operation), " of \"", operation.plan().algorithm, '"',
                            peers.empty() ? "" : text(", for ", ranks_text(peers))));
  status_->waits_since_ns.store(operation.quiet.since.count(), std::memory_order_relaxed);
}

// Asks the peers for their state. If `anew` is true, earlier answers do not count any more.
void Core::ask(Operation& operation, const IndexSet& peers, bool anew) {
  operation.answers.resize(static_cast<std::size_t>(size_));
  for (const int peer : peers.members()) {
    const auto at = static_cast<std::size_t>(peer);
    if (operation.is_exchange() && left_[at])
      throw Error(Code::peer_failed,
                  text(members_.name_of(peer), " left \"", name_, "\" without the message that ", describe(operation),
                       " at ", place(operation.call.origin), " waits for"),
                  "let every send have its receive before the communicator ends");
    if (anew) operation.answers[at].reset();
    if (left_[at]) continue;
    notes_.asked(peer);
    tell(peer, AskMessage{operation.is_exchange() ? 0 : operation.number});
  }
}

// Asks all members for their state on behalf of `lockstep stat`. The request comes from another process, which may
// repeat it at any rate. So members are asked at most every 100 ms (a guess), and a member that does not listen has at
// most one such question.
void Core::ask_as_requested() {
  if (failed()) return;
  constexpr std::int64_t least_gap_ns = 100'000'000;
  const std::int64_t now_ns = timeline::now_ns();
  if (now_ns - requested_ns_ < least_gap_ns) return;
  requested_ns_ = now_ns;
  const std::uint64_t request = status_->requests.load(std::memory_order_relaxed);
  for (int peer = 0; peer < size_; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == rank_ || left_[at]) continue;
    notes_.asked(peer);
    if (requested_[at]) continue;
    requested_[at] = true;
    tell(peer, AskMessage{});
  }
  status_->requests_served.store(request, std::memory_order_release);
}

// Returns the ranks that the operation waits for directly.
IndexSet Core::direct_peers(const Operation& operation) const {
  IndexSet all;
  for (const int peer : runner_.peers(operation).members()) {
    if (peer != rank_) all.insert(peer);
  }
  for (const int peer : agreement_.members(operation.agreements_missing)) all.insert(peer);
  for (const int peer : agreement_.told(operation.agreements_held)) all.insert(peer);
  return all;
}

// Returns all other ranks that take part in the operation.
IndexSet Core::all_peers(const Operation& operation) const {
  if (operation.is_exchange()) return direct_peers(operation);
  IndexSet all;
  if (rank_ > 0) all.insert(IndexSet::range(0, rank_ - 1));
  if (rank_ + 1 < size_) all.insert(IndexSet::range(rank_ + 1, size_ - 1));
  return all;
}

// Describes a waiting operation: the call, the length of its wait, and the state of the other members.
std::string Core::standing(const Operation& operation, Duration quiet) const {
  const std::string at = place(operation.call.origin);
  const IndexSet asked = all_peers(operation);
  const MemberReports reports{operation.answers, left_};
  IndexSet silent;
  for (const int rank : asked.members()) {
    const auto which = static_cast<std::size_t>(rank);
    const bool has_answered = which < operation.answers.size() && operation.answers[which];
    if (!has_answered && !left_[which]) silent.insert(rank);
  }
  return text(
      describe(operation), " on \"", name_, '"', at.empty() ? "" : text(" at ", at), " has waited ",
      format_duration(quiet), ", ", Runner::where(operation), " of \"", operation.plan().algorithm, "\": ",
      operation.is_exchange() ? standings_of_exchange(reports, asked, members_) : standings(reports, asked, members_),
      status_ == nullptr ? "" : status::neighbours(id_, silent));
}

Error Core::stalled(const Operation& operation, Duration quiet, bool by_program) const {
  return {Code::stall, standing(operation, quiet),
          by_program ? "look what those members do; the program has set this call's limit"
                     : "look what those members do; LOCKSTEP_TIMEOUT sets the limit"};
}

}  // namespace lockstep
