// SPDX-License-Identifier: Apache-2.0
// Handles the messages of a consensus, and runs its ballots. shrink_choice.cpp chooses a leader's proposal.
#include "collectives/engine/shrink_consensus.hpp"

#include <algorithm>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::shrinking {

ShrinkConsensus::ShrinkConsensus(int rank, int size, Patience patience, std::string name)
    : rank_(rank), size_(size), patience_(patience), name_(std::move(name)) {
  fates_.resize(static_cast<std::size_t>(size));
}

void ShrinkConsensus::begin(Duration now) {
  turn_ = 1;
  now_ = since_ = now;
  join();
}

void ShrinkConsensus::say_all(const ShrinkMessage& message) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !has_ended(peer)) say(peer, message);
  }
}

void ShrinkConsensus::join() {
  const JoinMessage mine{.lost = lost(), .part = part_};
  current().joined[rank_] = mine;
  say_all({turn_, mine});
}

// A new loss ends this member's ballot, which began with another view of the losses.
void ShrinkConsensus::lose(int peer, Fate fate) {
  Fate& known = fates_[static_cast<std::size_t>(peer)];
  if (fate <= known || peer == rank_) return;
  known = fate;
  doubt_since_.reset();
  ballot_.reset();
  if (turn_ > 0 && !verdict_) join();
  for (auto& [number, turn] : rounds_) promise(turn, number);
}

// A lost member is heard only if it tells a decision. A member that has failed for itself has failed in all turns.
void ShrinkConsensus::hear(int peer, std::span<const std::byte> bytes) {
  const ShrinkMessage message = parse_shrink_message(bytes, size_);
  const auto* const join = std::get_if<JoinMessage>(&message.word);
  if (join != nullptr && join->part.state == BuildState::failed) failed_.emplace(peer, join->part);
  const bool is_known_turn = message.turn > 0 && message.turn <= std::max(turn_, 1U) + 1;
  if (!is_known_turn || (is_lost(peer) && !std::holds_alternative<DecidedMessage>(message.word))) return;
  std::visit([&](const auto& word) { hear(peer, rounds_[message.turn], message.turn, word); }, message.word);
}

void ShrinkConsensus::hear(int peer, ConsensusRound& turn, std::uint32_t /*number*/, const JoinMessage& word) {
  turn.joined[peer] = word;
  doubt_since_.reset();
}

void ShrinkConsensus::hear(int peer, ConsensusRound& turn, std::uint32_t number, const PrepareMessage& word) {
  highest_ = std::max(highest_, word.ballot);
  if (turn.decided) return say(peer, {number, DecidedMessage{*turn.decided}});
  if (word.ballot <= turn.promised) return say(peer, {number, RefuseMessage{turn.promised}});
  if (turn.asked && turn.asked->second.ballot >= word.ballot) return;
  turn.asked = {peer, word};
  promise(turn, number);
}

void ShrinkConsensus::promise(ConsensusRound& turn, std::uint32_t number) {
  if (!turn.asked || turn.decided) return;
  const auto [leader, word] = *turn.asked;
  if (!ended().contains(word.ended)) return;
  turn.asked.reset();
  if (word.ballot <= turn.promised) return say(leader, {number, RefuseMessage{turn.promised}});
  turn.promised = word.ballot;
  leave_ballot_below(word.ballot, number);
  say(leader, {number, PromiseMessage{word.ballot, turn.accepted_in, turn.accepted.value_or(ShrinkDecision{})}});
  if (const auto early = std::exchange(turn.early, {})) hear(leader, turn, number, *early);
}

void ShrinkConsensus::leave_ballot_below(std::uint64_t promised, std::uint32_t number) {
  if (ballot_ && number == turn_ && ballot_->number < promised) ballot_.reset();
}

void ShrinkConsensus::hear(int peer, ConsensusRound& /*turn*/, std::uint32_t number, const PromiseMessage& word) {
  if (!ballot_ || number != turn_ || word.ballot != ballot_->number || ballot_->proposes) return;
  ballot_->promises.insert(peer);
  if (word.accepted_in <= ballot_->accepted_in) return;
  ballot_->accepted_in = word.accepted_in;
  ballot_->value = word.accepted;
}

void ShrinkConsensus::hear(int peer, ConsensusRound& turn, std::uint32_t number, const ProposeMessage& word) {
  highest_ = std::max(highest_, word.ballot);
  if (turn.decided) return say(peer, {number, DecidedMessage{*turn.decided}});
  if (turn.asked && turn.asked->second.ballot == word.ballot) {
    turn.early = word;
    return;
  }
  if (word.ballot != turn.promised) return say(peer, {number, RefuseMessage{std::max(turn.promised, word.ballot)}});
  turn.accepted_in = word.ballot;
  turn.accepted = word.verdict;
  say(peer, {number, AcceptMessage{word.ballot}});
}

void ShrinkConsensus::hear(int peer, ConsensusRound& /*turn*/, std::uint32_t number, const AcceptMessage& word) {
  if (ballot_ && number == turn_ && word.ballot == ballot_->number && ballot_->proposes) ballot_->accepts.insert(peer);
}

// Ends this member's ballot, which a higher one has overtaken. Waits before the next one, so that the other one can
// end.
void ShrinkConsensus::hear(int /*peer*/, ConsensusRound& /*turn*/, std::uint32_t number, const RefuseMessage& word) {
  constexpr std::chrono::milliseconds a_while{20};
  highest_ = std::max(highest_, word.ballot);
  if (!ballot_ || number != turn_ || word.ballot <= ballot_->number) return;
  ballot_.reset();
  next_ballot_ = now_ + a_while * (rank_ + 1);
}

void ShrinkConsensus::hear(int /*peer*/, ConsensusRound& turn, std::uint32_t number, const DecidedMessage& word) {
  if (number == turn_ && !verdict_) return decide(word.verdict);
  if (!turn.decided) turn.decided = word.verdict;
}

// Takes a decision and tells it to all. Members that have only heard it tell it too: the one that told them may be
// gone.
void ShrinkConsensus::decide(const ShrinkDecision& verdict) {
  current().decided = verdict;
  ballot_.reset();
  say_all({turn_, DecidedMessage{verdict}});
  take(verdict);
}

void ShrinkConsensus::take(const ShrinkDecision& verdict) {
  verdict_ = verdict;
  if (verdict.stage == ShrinkStage::failed) return;
  if (verdict.members.contains(rank_)) {
    members_ = verdict.members;
    return;
  }
  verdict_ = ShrinkDecision{.code = Code::peer_failed,
                            .why = text(what(), ": rank ", verdict.members.to_string(), " go on without rank ", rank_,
                                        ", which they had lost -> check the link between the hosts")};
}

void ShrinkConsensus::built(const BuildResult& part, Duration now) {
  part_ = part;
  if (part.state == BuildState::failed) failed_.emplace(rank_, part);
  verdict_.reset();
  ballot_.reset();
  doubt_since_.reset();
  warned_ = false;
  ++turn_;
  now_ = since_ = next_ballot_ = now;
  if (const auto decided = current().decided) return decide(*decided);
  join();
  promise(current(), turn_);
}

std::optional<std::string> ShrinkConsensus::why_in_vain() const {
  if (const auto wrong = trouble()) return wrong->why;
  for (const int each : members_.members()) {
    if (is_lost(each)) return text("rank ", each, " is gone");
  }
  const auto next = rounds_.find(turn_ + 1);
  if (next == rounds_.end()) return std::nullopt;
  if (next->second.decided) return next->second.decided->why;
  for (const auto& [peer, word] : next->second.joined) {
    if (word.part.state >= BuildState::unlucky) return text("rank ", peer, ": ", word.part.why);
  }
  return std::nullopt;
}

void ShrinkConsensus::give_up(Code code, std::string why) {
  part_ = {BuildState::failed, code, why};
  failed_.emplace(rank_, part_);
  ballot_.reset();
  join();
  verdict_ = ShrinkDecision{.code = code, .why = std::move(why)};
}

void ShrinkConsensus::begin_ballot(ShrinkDecision value) {
  ConsensusRound& turn = current();
  highest_ = std::max(highest_, turn.promised);
  const auto members = static_cast<std::uint64_t>(size_);
  const std::uint64_t number = (highest_ / members + 1) * members + static_cast<std::uint64_t>(rank_);
  highest_ = turn.promised = number;
  ballot_ = Ballot{.number = number, .value = std::move(value), .promises = {rank_}, .accepts = {}};
  if (turn.accepted) {
    ballot_->value = *turn.accepted;
    ballot_->accepted_in = turn.accepted_in;
  }
  say_all({turn_, PrepareMessage{number, ended()}});
}

void ShrinkConsensus::advance_ballot() {
  if (!ballot_->proposes && counts(ballot_->promises)) {
    ballot_->proposes = true;
    ballot_->accepts = {rank_};
    ConsensusRound& turn = current();
    turn.accepted_in = ballot_->number;
    turn.accepted = ballot_->value;
    say_all({turn_, ProposeMessage{ballot_->number, ballot_->value}});
  }
  if (ballot_->proposes && counts(ballot_->accepts)) decide(ShrinkDecision(ballot_->value));
}

bool ShrinkConsensus::counts(const std::set<int>& who) const {
  IndexSet all;
  for (const int each : who) all.insert(each);
  return may_go_on(all);
}

bool ShrinkConsensus::may_go_on(const IndexSet& who) const {
  const auto members = static_cast<std::size_t>(size_);
  if (2 * who.size() > members || (2 * who.size() == members && who.contains(0))) return true;
  for (int peer = 0; peer < size_; ++peer) {
    if (!who.contains(peer) && !has_ended(peer)) return false;
  }
  return true;
}

}  // namespace lockstep::shrinking
