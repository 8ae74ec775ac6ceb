// SPDX-License-Identifier: Apache-2.0
// What members tell each other: agreement, answers, the failure and the end of others; and patience with the silent.
#include <algorithm>

#include "collectives/engine/book_reading.hpp"
#include "collectives/engine/core.hpp"

namespace lockstep {

bool Core::listen() {
  bool heard = false;
  while (!failed()) {
    const std::optional<Transport::Heard> next = transport_.hear();
    if (!next) break;
    heard = true;
    Word word;
    try {
      word = parse_word(next->bytes);
    } catch (const Error& error) {
      throw Error(Code::bad_message,
                  text("what rank ", next->peer, " told \"", name_, "\" cannot be read: ", error.detail()));
    }
    std::visit([&](const auto& one) { hear(next->peer, one); }, word);
  }
  return heard;
}

void Core::hear(int peer, const Agree& word) {
  if (word.call.number > last_started_) {
    agreement_.keep(peer, word.call);
    return;
  }
  compare(peer, word.call);
  for (Operation* operation : active_) {
    if (operation->is_exchange() || operation->number != word.call.number) continue;
    operation->words_missing &= ~agreement_.bit_of(peer);
    wait_anew(*operation);
  }
}

void Core::hear(int peer, const Ask& word) {
  Answer answer{.number = word.number, .last_finished = last_finished_};
  for (const Operation* operation : active_) {
    if (operation->is_exchange()) continue;
    answer.oldest_in_flight = operation->number;
    break;
  }
  const Recorded* recorded = record_.find(word.number);
  if (recorded != nullptr) {
    answer.standing = recorded->finished ? Answer::Standing::finished : Answer::Standing::in_it;
    answer.call.push_back(word_of(*recorded));
  } else if (word.number <= last_started_) {
    answer.standing = Answer::Standing::forgotten;
  }
  // And those before it: members that differed in a call that all have finished never meet again.
  constexpr std::uint64_t told = 16;
  std::uint64_t before = std::min(word.number == 0 ? last_started_ : word.number - 1, last_started_);
  for (std::uint64_t i = 0; i < told && before > 0; ++i, --before) {
    if (const Recorded* earlier = record_.find(before)) answer.call.push_back(word_of(*earlier));
  }
  tell(peer, answer);
}

void Core::hear(int peer, const Answer& word) {
  for (const CallWord& call : word.call) compare(peer, call);
  for (Operation* operation : active_) {
    const std::uint64_t asked = operation->is_exchange() ? 0 : operation->number;
    if (word.number == asked && !operation->answers.empty()) operation->answers[static_cast<std::size_t>(peer)] = word;
  }
}

void Core::hear(int peer, const Fail& word) {
  const Error error = word.code == Code::mismatch ? Error(Code::mismatch, word.text)
                                                  : Error(Code::peer_failed, text("rank ", peer, ": ", word.text));
  fail(std::make_exception_ptr(error), {error.code(), std::string(error.detail())}, false);
}

void Core::hear(int peer, const Left& word) {
  left_[static_cast<std::size_t>(peer)] = word.last_started;
  anybody_left_ = true;
  for (const CallWord& call : word.last) compare(peer, call);
  for (const Operation* operation : active_) check_present(*operation);
}

// A call that cannot come about, because somebody left before it.
void Core::check_present(const Operation& operation) {
  if (operation.is_exchange()) return;
  for (std::size_t peer = 0; peer < left_.size(); ++peer) {
    const auto& left = left_[peer];
    if (!left || *left >= operation.number) continue;
    throw Error(Code::peer_failed,
                text("rank ", peer, " left \"", name_, "\" after ", *left == 0 ? "no call" : text("call ", *left),
                     ", and is not in ", describe(operation)),
                "let all members make the same calls before they end the communicator");
  }
}

void Core::compare(int peer, const CallWord& theirs) {
  const Recorded* recorded = record_.find(theirs.number);
  if (recorded == nullptr) return;
  if (recorded->signature == theirs.signature && recorded->choice == theirs.choice) return;
  throw different_calls(name_, peer, theirs, rank_, word_of(*recorded));
}

CallWord Core::word_of(const Recorded& recorded) const {
  return {recorded.number, recorded.signature, recorded.choice, recorded.plan->algorithm, place(recorded.origin)};
}

void Core::tell(int peer, const Word& word) { transport_.tell(peer, to_bytes(word)); }

void Core::tell_all(const Word& word) { transport_.tell_all(to_bytes(word)); }

void Core::watch(const Ticket& ticket, Duration now) {
  if (failed()) return;
  Operation& operation = operation_of(ticket);
  if (operation.state != Operation::State::flying) return;
  const Duration limit = operation.call.limit > Duration{} ? operation.call.limit : patience_.limit;
  guarded([&] { look(what_it_waits_for(operation), limit, now); });
}

// Itself, or an earlier one that has the lanes or the room.
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
  Quiet& quiet = operation.quiet;
  Duration soon = milliseconds(100);  // also how long before a warning all are asked, so that they can answer
  for (const Duration each : {patience_.warn, limit}) {
    if (each > Duration{}) soon = std::min(soon, each / 4);
  }
  if (quiet.since == Quiet::unknown) {
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
    const IndexSet peers = near(operation);
    ask(operation, peers, false);
    write_what_is_waited_for(operation, peers);
    quiet.ask_gap = std::min<Duration>(2 * quiet.ask_gap, milliseconds(1600));
    quiet.next_ask = now + quiet.ask_gap;
  }
  const auto ask_all_at = [&](Duration end, bool& asked) {
    if (!reaches(end, soon) || std::exchange(asked, true)) return;
    ask(operation, far(operation), true);
    quiet.asked = now;
  };
  ask_all_at(patience_.warn, quiet.asked_for_warning);
  ask_all_at(limit, quiet.asked_for_limit);
  if (now - quiet.asked < soon) return;  // time to answer
  if (reaches(limit, {})) throw stalled(operation, lasted, limit != patience_.limit);
  if (!reaches(patience_.warn, {}) || std::exchange(quiet.warned, true)) return;
  log_.warn(text(id(Code::stall), " a wait is long: ", standing(operation, lasted),
                 limit == Duration{} ? "; it goes on" : text("; it goes on until ", format_duration(limit)),
                 " -> look what those members do"));
}

// Which call it is, is known of the last one.
void Core::write_what_is_waited_for(const Operation& operation, const IndexSet& peers) {
  if (page_ == nullptr) return;
  const bool is_last = !operation.is_exchange() && operation.number == last_started_;
  page_->waits.write(text(is_last ? "" : describe(operation) + ", ", Runner::where(operation), " of \"",
                          operation.plan().algorithm, '"', peers.empty() ? "" : text(", for ", ranks_text(peers))));
  page_->waits_since_ns.store(operation.quiet.since.count(), std::memory_order_relaxed);
}

// Anew: what was answered before does not count any more.
void Core::ask(Operation& operation, const IndexSet& peers, bool anew) {
  operation.answers.resize(static_cast<std::size_t>(size_));
  for (const int peer : peers.members()) {
    const auto at = static_cast<std::size_t>(peer);
    if (operation.is_exchange() && left_[at])
      throw Error(Code::peer_failed,
                  text("rank ", peer, " left \"", name_, "\" without the message that ", describe(operation), " at ",
                       place(operation.call.origin), " waits for"),
                  "let every send have its receive before the communicator ends");
    if (anew) operation.answers[at].reset();
    if (!left_[at]) tell(peer, Ask{operation.is_exchange() ? 0 : operation.number});
  }
}

// Those that it waits for directly.
IndexSet Core::near(const Operation& operation) const {
  IndexSet all;
  for (const int peer : runner_.peers(operation).members()) {
    if (peer != rank_) all.insert(peer);
  }
  for (const int peer : agreement_.members(operation.words_missing)) all.insert(peer);
  for (const int peer : agreement_.told(operation.words_held)) all.insert(peer);
  return all;
}

// All that have a part in it.
IndexSet Core::far(const Operation& operation) const {
  if (operation.is_exchange()) return near(operation);
  IndexSet all;
  if (rank_ > 0) all.insert(IndexSet::range(0, rank_ - 1));
  if (rank_ + 1 < size_) all.insert(IndexSet::range(rank_ + 1, size_ - 1));
  return all;
}

// Of one that waits: what it is, how long that lasts, and where the others stand.
std::string Core::standing(const Operation& operation, Duration quiet) const {
  const std::string at = place(operation.call.origin);
  const IndexSet asked = far(operation);
  const Roll roll{operation.answers, left_};
  IndexSet silent;
  for (const int rank : asked.members()) {
    const auto which = static_cast<std::size_t>(rank);
    const bool has_answered = which < operation.answers.size() && operation.answers[which];
    if (!has_answered && !left_[which]) silent.insert(rank);
  }
  return text(describe(operation), " on \"", name_, '"', at.empty() ? "" : text(" at ", at), " has waited ",
              format_duration(quiet), ", ", Runner::where(operation), " of \"", operation.plan().algorithm,
              "\": ", operation.is_exchange() ? standings_of_exchange(roll, asked) : standings(roll, asked),
              page_ == nullptr ? "" : book::neighbours(id_, silent));
}

Error Core::stalled(const Operation& operation, Duration quiet, bool by_program) const {
  return {Code::stall, standing(operation, quiet),
          by_program ? "look what those members do; the program has set this call's limit"
                     : "look what those members do; LOCKSTEP_TIMEOUT sets the limit"};
}

}  // namespace lockstep
