// SPDX-License-Identifier: Apache-2.0
// Implements the questions to missing members, the warning, and the error.
#include "collectives/engine/stall_detector.hpp"

#include <algorithm>
#include <utility>

#include "collectives/engine/stall.hpp"

namespace lockstep {

StallDetector::StallDetector(const CommunicatorIdentity& identity, Transport& transport, Sources sources,
                             StatusPublisher& publisher, const Log& log, WaitLimits wait_limits)
    : identity_(identity),
      transport_(transport),
      sources_(sources),
      publisher_(publisher),
      log_(log),
      wait_limits_(wait_limits),
      awaits_answer_for_reader_(static_cast<std::size_t>(identity.size)) {}

void StallDetector::watch(Operation& operation, Duration now) {
  const Duration own_limit = operation.call.limit;
  const Duration limit = own_limit > Duration{} ? own_limit : Duration(wait_limits_.limit);
  watch_blocker(blocker_of(operation), limit, now);
}

// Returns the operation, or an earlier one that holds its lane or the room.
Operation& StallDetector::blocker_of(Operation& operation) const {
  if (operation.is_agreeing()) return operation;
  if (operation.is_begun && !Runner::waits_for_its_turn(operation)) return operation;
  for (Operation* earlier : sources_.operations.active()) {
    if (earlier == &operation) break;
    if (sources_.runner.is_ahead(*earlier, operation)) return *earlier;
  }
  return operation;
}

// Asks awaited members at growing intervals, all of them shortly before the warning and the limit, and then warns or
// throws.
void StallDetector::watch_blocker(Operation& operation, Duration limit, Duration now) {
  using std::chrono::milliseconds;
  StallWatch& stall = operation.stall;
  // `soon` is also the time before a warning at which all are asked, so that they can answer.
  Duration soon = milliseconds(100);
  for (const Duration each : {Duration(wait_limits_.warn), limit}) {
    if (each > Duration{}) soon = std::min(soon, each / 4);
  }
  if (stall.since == StallWatch::unknown) {
    stall = {.since = now, .last_turn = now, .next_query = now + soon, .query_interval = soon};
    operation.answers.clear();
  }
  // Time in which this member did not look (it computed, or was stopped) does not count against the others.
  const Duration unseen = now - stall.last_turn - std::chrono::seconds(1);
  if (unseen > Duration{}) stall.since += unseen;
  stall.last_turn = now;

  const Duration lasted = now - stall.since;
  const auto reaches = [&](Duration end, Duration before) { return end > Duration{} && lasted >= end - before; };
  if (now >= stall.next_query) {
    const IndexSet peers = direct_peers(operation);
    send_queries(operation, peers, false);
    publisher_.begin_wait(operation, Runner::where(operation), peers);
    stall.query_interval = std::min<Duration>(2 * stall.query_interval, milliseconds(1600));
    stall.next_query = now + stall.query_interval;
  }
  if (lasted >= std::chrono::seconds(1) || reaches(limit, soon)) refuse_if_in_another(operation);
  const auto ask_all_at = [&](Duration end, bool& asked) {
    if (!reaches(end, soon) || std::exchange(asked, true)) return;
    send_queries(operation, all_peers(operation), true);
    stall.last_query = now;
  };
  ask_all_at(wait_limits_.warn, stall.has_queried_for_warning);
  ask_all_at(limit, stall.has_queried_for_limit);
  if (now - stall.last_query < soon) return;  // leaves the members time to answer
  if (reaches(limit, {})) {
    throw Error(Code::stall, describe_wait(operation, lasted),
                limit != wait_limits_.limit
                    ? "run `lockstep stat` on their hosts; the program has set this call's limit"
                    : "run `lockstep stat` on their hosts; LOCKSTEP_TIMEOUT sets the limit");
  }
  if (!reaches(wait_limits_.warn, {}) || std::exchange(stall.has_warned, true)) return;
  log_.warn(text(id(Code::stall), " a wait is long: ", describe_wait(operation, lasted),
                 limit == Duration{} ? "; it has no limit" : text("; the call fails at ", format_duration(limit)),
                 " -> run `lockstep stat` on their hosts"));
}

// Throws if a member of the node is in another call. Such a member usually says which call when it is asked. But the
// root of a broadcast may have left its call, and be in none in which it would answer.
void StallDetector::refuse_if_in_another(const Operation& operation) const {
  const IndexSet others = sources_.runner.in_other_call(operation);
  if (others.empty()) return;
  throw Error(
      Code::mismatch,
      text("members of \"", identity_.name, "\" made different calls: ", identity_.members.name_of(others),
           " made another one than ", describe(operation), " at ", place(operation.call.origin),
           " and did not answer which"),
      "let all members make the same calls with the same counts, types, operations and roots in the same order, "
      "and replicas change the same variables in the same order");
}

// Asks the peers for their state. If `drops_answers` is true, it forgets their earlier answers.
void StallDetector::send_queries(Operation& operation, const IndexSet& peers, bool drops_answers) {
  operation.answers.resize(static_cast<std::size_t>(identity_.size));
  for (const int peer : peers.members()) {
    if (operation.is_message()) sources_.departed.check_peer(operation, peer);
    if (drops_answers) operation.answers[static_cast<std::size_t>(peer)].reset();
    if (sources_.departed.has(peer)) continue;
    publisher_.notes().asked(peer);
    transport_.send_control(peer, to_bytes(QueryMessage{operation.is_message() ? 0 : operation.number}));
  }
}

void StallDetector::handle(int peer, const AnswerMessage& answer) {
  publisher_.notes().answered(peer, answer.last_finished, answer.oldest_in_flight);
  if (answer.number == 0) awaits_answer_for_reader_[static_cast<std::size_t>(peer)] = false;
  for (Operation* operation : sources_.operations.active()) {
    const std::uint64_t asked = operation->is_message() ? 0 : operation->number;
    if (answer.number == asked && !operation->answers.empty())
      operation->answers[static_cast<std::size_t>(peer)] = answer;
  }
}

// The request comes from another process, which may repeat it at any rate. So members are asked at most every 100 ms (a
// guess), and a member that does not listen has at most one such question.
void StallDetector::query_for_reader() {
  constexpr std::int64_t least_gap_ns = 100'000'000;
  const std::int64_t now_ns = timeline::now_ns();
  if (now_ns - reader_asked_ns_ < least_gap_ns) return;
  reader_asked_ns_ = now_ns;
  publisher_.serve_request([&] {
    for (int peer = 0; peer < identity_.size; ++peer) {
      if (peer == identity_.rank || sources_.departed.has(peer)) continue;
      publisher_.notes().asked(peer);
      if (awaits_answer_for_reader_[static_cast<std::size_t>(peer)]) continue;
      awaits_answer_for_reader_[static_cast<std::size_t>(peer)] = true;
      transport_.send_control(peer, to_bytes(QueryMessage{}));
    }
  });
}

// Returns the ranks that the operation waits for directly.
IndexSet StallDetector::direct_peers(const Operation& operation) const {
  IndexSet all;
  for (const int peer : sources_.runner.peers(operation).members()) {
    if (peer != identity_.rank) all.insert(peer);
  }
  for (const int peer : sources_.agreement.sources_of(operation.agreements_missing)) all.insert(peer);
  for (const int peer : sources_.agreement.targets_of(operation.agreements_held)) all.insert(peer);
  return all;
}

// Returns all other ranks that take part in the operation.
IndexSet StallDetector::all_peers(const Operation& operation) const {
  if (operation.is_message()) return direct_peers(operation);
  IndexSet all;
  if (identity_.rank > 0) all.insert(IndexSet::range(0, identity_.rank - 1));
  if (identity_.rank + 1 < identity_.size) all.insert(IndexSet::range(identity_.rank + 1, identity_.size - 1));
  return all;
}

// Describes a waiting operation: the call, the length of its wait, and the state of the other members.
std::string StallDetector::describe_wait(const Operation& operation, Duration stall) const {
  const std::string at = place(operation.call.origin);
  const IndexSet asked = all_peers(operation);
  const MemberReports reports{operation.answers, sources_.departed.last_calls()};
  IndexSet silent;
  for (const int rank : asked.members()) {
    const auto which = static_cast<std::size_t>(rank);
    const bool has_answered = which < operation.answers.size() && operation.answers[which];
    if (!has_answered && !sources_.departed.has(rank)) silent.insert(rank);
  }
  return text(describe(operation), " on \"", identity_.name, '"', at.empty() ? "" : text(" at ", at), " has waited ",
              format_duration(stall), ", ", Runner::where(operation), " of \"", operation.plan().algorithm, "\": ",
              operation.is_message() ? progress_report_of_message(reports, asked, identity_.members)
                                     : progress_report(reports, asked, identity_.members),
              publisher_.neighbours(silent));
}

}  // namespace lockstep
