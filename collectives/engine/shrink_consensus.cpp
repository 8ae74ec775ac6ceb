// SPDX-License-Identifier: Apache-2.0
// Handles the messages of a consensus, and runs its ballots. shrink_choice.cpp chooses a leader's proposal.
#include "collectives/engine/shrink_consensus.hpp"

#include <algorithm>
#include <utility>

#include "topology/base/error.hpp"

namespace lockstep::shrinking {

ShrinkConsensus::ShrinkConsensus(int rank, int size, Patience patience, std::string name)
    : name_(std::move(name)), fates_(rank, size), timer_(patience) {}

void ShrinkConsensus::begin(Duration now) {
  turn_ = 1;
  timer_.begin(now);
  join();
}

void ShrinkConsensus::say_all(const ShrinkMessage::Content& content) {
  for (int peer = 0; peer < fates_.size(); ++peer) {
    if (peer != fates_.rank() && !fates_.has_ended(peer)) say(peer, {turn_, content});
  }
}

void ShrinkConsensus::join() {
  const JoinMessage mine{.lost = fates_.lost(), .part = part_};
  current().joined[fates_.rank()] = mine;
  say_all(mine);
}

// A new loss ends this member's ballot, which began with another view of the losses.
void ShrinkConsensus::lose(int peer, Fate fate) {
  if (!fates_.worsen(peer, fate)) return;
  timer_.end_doubt();
  ballot_.reset();
  if (turn_ > 0 && !verdict_) join();
  for (auto& [number, turn] : turns_) answer(number, turn.acceptor.answer_waiting(fates_.ended()));
}

// A lost member is heard only if it tells a decision. A member that has failed for itself has failed in all turns.
void ShrinkConsensus::hear(int peer, std::span<const std::byte> bytes) {
  const ShrinkMessage message = parse_shrink_message(bytes, fates_.size());
  const auto* const join = std::get_if<JoinMessage>(&message.content);
  if (join != nullptr && join->part.state == BuildState::failed) failed_.emplace(peer, join->part);
  const bool is_known_turn = message.turn > 0 && message.turn <= std::max(turn_, 1U) + 1;
  if (!is_known_turn || (fates_.is_lost(peer) && !std::holds_alternative<DecidedMessage>(message.content))) return;
  std::visit([&](const auto& content) { hear(peer, message.turn, content); }, message.content);
}

void ShrinkConsensus::hear(int peer, std::uint32_t turn, const JoinMessage& message) {
  turns_[turn].joined[peer] = message;
  timer_.end_doubt();
}

void ShrinkConsensus::hear(int peer, std::uint32_t turn, const PrepareMessage& message) {
  highest_ = std::max(highest_, message.ballot);
  answer(turn, turns_[turn].acceptor.hear(peer, message, fates_.ended()));
}

void ShrinkConsensus::hear(int peer, std::uint32_t turn, const ProposeMessage& message) {
  highest_ = std::max(highest_, message.ballot);
  answer(turn, turns_[turn].acceptor.hear(peer, message));
}

// Sends the answers of a turn's acceptor. If it has promised a higher ballot, this member's own one ends.
void ShrinkConsensus::answer(std::uint32_t turn, const BallotAcceptor::Answers& answers) {
  if (ballot_ && turn == turn_ && ballot_->number() < current().acceptor.promised()) ballot_.reset();
  for (const auto& [peer, content] : answers) say(peer, {turn, content});
}

void ShrinkConsensus::hear(int peer, std::uint32_t turn, const PromiseMessage& message) {
  if (ballot_ && turn == turn_) ballot_->hear(peer, message);
}

void ShrinkConsensus::hear(int peer, std::uint32_t turn, const AcceptMessage& message) {
  if (ballot_ && turn == turn_) ballot_->hear(peer, message);
}

// Ends this member's ballot, which a higher one has overtaken. Waits before the next one, so that the other one can
// end.
void ShrinkConsensus::hear(int /*peer*/, std::uint32_t turn, const RefuseMessage& message) {
  constexpr std::chrono::milliseconds a_while{20};
  highest_ = std::max(highest_, message.ballot);
  if (!ballot_ || turn != turn_ || message.ballot <= ballot_->number()) return;
  ballot_.reset();
  next_ballot_ = timer_.now() + a_while * (fates_.rank() + 1);
}

void ShrinkConsensus::hear(int /*peer*/, std::uint32_t turn, const DecidedMessage& message) {
  if (turn == turn_ && !verdict_) return decide(message.verdict);
  BallotAcceptor& acceptor = turns_[turn].acceptor;
  if (!acceptor.decided()) acceptor.decide(message.verdict);
}

// Takes a decision and tells it to all. Members that have only heard it tell it too: the one that told them may be
// gone.
void ShrinkConsensus::decide(const ShrinkDecision& verdict) {
  current().acceptor.decide(verdict);
  ballot_.reset();
  say_all(DecidedMessage{verdict});
  verdict_ = verdict;
  if (verdict.stage == ShrinkStage::failed) return;
  if (verdict.members.contains(fates_.rank())) {
    members_ = verdict.members;
    return;
  }
  verdict_ = ShrinkDecision{.code = Code::peer_failed,
                            .why = text(title(), ": rank ", verdict.members.to_string(), " continue without rank ",
                                        fates_.rank(), ", which they had lost -> check the link between the hosts")};
}

void ShrinkConsensus::built(const BuildResult& part, Duration now) {
  part_ = part;
  if (part.state == BuildState::failed) failed_.emplace(fates_.rank(), part);
  verdict_.reset();
  ballot_.reset();
  ++turn_;
  timer_.begin(now);
  next_ballot_ = now;
  if (const auto decided = current().acceptor.decided()) return decide(*decided);
  join();
  answer(turn_, current().acceptor.answer_waiting(fates_.ended()));
}

std::optional<std::string> ShrinkConsensus::why_in_vain() const {
  if (const auto failure = build_failure()) return failure->why;
  for (const int each : members_.members()) {
    if (fates_.is_lost(each)) return text("rank ", each, " is gone");
  }
  const auto next = turns_.find(turn_ + 1);
  if (next == turns_.end()) return std::nullopt;
  if (const auto& decided = next->second.acceptor.decided()) return decided->why;
  for (const auto& [peer, message] : next->second.joined) {
    if (message.part.state >= BuildState::unlucky) return text("rank ", peer, ": ", message.part.why);
  }
  return std::nullopt;
}

void ShrinkConsensus::give_up(Code code, std::string why) {
  part_ = {BuildState::failed, code, why};
  failed_.emplace(fates_.rank(), part_);
  ballot_.reset();
  join();
  verdict_ = ShrinkDecision{.code = code, .why = std::move(why)};
}

void ShrinkConsensus::begin_ballot(ShrinkDecision value) {
  BallotAcceptor& own = current().acceptor;
  highest_ = std::max(highest_, own.promised());
  const auto members = static_cast<std::uint64_t>(fates_.size());
  highest_ = (highest_ / members + 1) * members + static_cast<std::uint64_t>(fates_.rank());
  own.promise_own(highest_);
  ballot_.emplace(highest_, fates_.rank(), std::move(value), own);
  say_all(PrepareMessage{highest_, fates_.ended()});
}

void ShrinkConsensus::advance_ballot() {
  if (!ballot_->is_proposed() && fates_.may_go_on(ballot_->supporters())) {
    ballot_->propose();
    current().acceptor.accept(ballot_->number(), ballot_->value());
    say_all(ProposeMessage{ballot_->number(), ballot_->value()});
  }
  if (ballot_->is_proposed() && fates_.may_go_on(ballot_->supporters())) decide(ShrinkDecision(ballot_->value()));
}

}  // namespace lockstep::shrinking
