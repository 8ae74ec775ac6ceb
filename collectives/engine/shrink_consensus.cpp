// SPDX-License-Identifier: Apache-2.0
// Handles the messages of a consensus, and runs its ballots. shrink_choice.cpp chooses a leader's proposal.
#include "collectives/engine/shrink_consensus.hpp"

#include <algorithm>
#include <utility>

#include "topology/base/error.hpp"

namespace lockstep::shrinking {

ShrinkConsensus::ShrinkConsensus(int rank, int size, WaitLimits wait_limits, std::string name)
    : name_(std::move(name)), member_states_(rank, size), timer_(wait_limits) {}

void ShrinkConsensus::begin(Duration now) {
  turn_ = 1;
  timer_.begin(now);
  join();
}

void ShrinkConsensus::send_to_all(const ShrinkMessage::Content& content) {
  for (int peer = 0; peer < member_states_.size(); ++peer) {
    if (peer != member_states_.rank() && !member_states_.has_ended(peer)) send(peer, {turn_, content});
  }
}

void ShrinkConsensus::join() {
  const JoinMessage mine{.lost = member_states_.lost(), .part = part_};
  current().joined[member_states_.rank()] = mine;
  send_to_all(mine);
}

// A new loss ends this member's ballot, which began with another view of the losses.
void ShrinkConsensus::report_state(int peer, PeerState peer_state) {
  if (!member_states_.worsen(peer, peer_state)) return;
  timer_.end_doubt();
  ballot_.reset();
  if (turn_ > 0 && !decision_) join();
  for (auto& [number, turn] : turns_) answer(number, turn.acceptor.answer_waiting(member_states_.ended()));
}

// A lost member is heard only if it tells a decision. A member that has failed for itself has failed in all turns.
void ShrinkConsensus::handle(int peer, std::span<const std::byte> bytes) {
  const ShrinkMessage message = parse_shrink_message(bytes, member_states_.size());
  const auto* const join = std::get_if<JoinMessage>(&message.content);
  if (join != nullptr && join->part.state == BuildState::failed) failed_.emplace(peer, join->part);
  const bool is_known_turn = message.turn > 0 && message.turn <= std::max(turn_, 1U) + 1;
  if (!is_known_turn || (member_states_.is_lost(peer) && !std::holds_alternative<DecidedMessage>(message.content)))
    return;
  std::visit([&](const auto& content) { handle(peer, message.turn, content); }, message.content);
}

void ShrinkConsensus::handle(int peer, std::uint32_t turn, const JoinMessage& message) {
  turns_[turn].joined[peer] = message;
  timer_.end_doubt();
}

void ShrinkConsensus::handle(int peer, std::uint32_t turn, const PrepareMessage& message) {
  highest_ = std::max(highest_, message.ballot);
  answer(turn, turns_[turn].acceptor.handle(peer, message, member_states_.ended()));
}

void ShrinkConsensus::handle(int peer, std::uint32_t turn, const ProposeMessage& message) {
  highest_ = std::max(highest_, message.ballot);
  answer(turn, turns_[turn].acceptor.handle(peer, message));
}

// Sends the answers of a turn's acceptor. If it has promised a higher ballot, this member's own one ends.
void ShrinkConsensus::answer(std::uint32_t turn, const BallotAcceptor::Answers& answers) {
  if (ballot_ && turn == turn_ && ballot_->number() < current().acceptor.promised()) ballot_.reset();
  for (const auto& [peer, content] : answers) send(peer, {turn, content});
}

void ShrinkConsensus::handle(int peer, std::uint32_t turn, const PromiseMessage& message) {
  if (ballot_ && turn == turn_) ballot_->handle(peer, message);
}

void ShrinkConsensus::handle(int peer, std::uint32_t turn, const AcceptMessage& message) {
  if (ballot_ && turn == turn_) ballot_->handle(peer, message);
}

// Ends this member's ballot, which a higher one has overtaken. Waits before the next one, so that the other one can
// end.
void ShrinkConsensus::handle(int /*peer*/, std::uint32_t turn, const RefuseMessage& message) {
  constexpr std::chrono::milliseconds a_while{20};
  highest_ = std::max(highest_, message.ballot);
  if (!ballot_ || turn != turn_ || message.ballot <= ballot_->number()) return;
  ballot_.reset();
  next_ballot_ = timer_.now() + a_while * (member_states_.rank() + 1);
}

void ShrinkConsensus::handle(int /*peer*/, std::uint32_t turn, const DecidedMessage& message) {
  if (turn == turn_ && !decision_) return decide(message.verdict);
  BallotAcceptor& acceptor = turns_[turn].acceptor;
  if (!acceptor.decided()) acceptor.decide(message.verdict);
}

// Takes a decision and tells it to all. Members that have only heard it tell it too: the one that told them may be
// gone.
void ShrinkConsensus::decide(const ShrinkDecision& verdict) {
  current().acceptor.decide(verdict);
  ballot_.reset();
  send_to_all(DecidedMessage{verdict});
  decision_ = verdict;
  if (verdict.stage == ShrinkStage::failed) return;
  if (verdict.members.contains(member_states_.rank())) {
    members_ = verdict.members;
    return;
  }
  decision_ =
      ShrinkDecision{.code = Code::peer_failed,
                     .why = text(title(), ": rank ", verdict.members.to_string(), " continue without rank ",
                                 member_states_.rank(), ", which they had lost -> check the link between the hosts")};
}

void ShrinkConsensus::report_build(const BuildResult& part, Duration now) {
  part_ = part;
  if (part.state == BuildState::failed) failed_.emplace(member_states_.rank(), part);
  decision_.reset();
  ballot_.reset();
  ++turn_;
  timer_.begin(now);
  next_ballot_ = now;
  if (const auto decided = current().acceptor.decided()) return decide(*decided);
  join();
  answer(turn_, current().acceptor.answer_waiting(member_states_.ended()));
}

std::optional<std::string> ShrinkConsensus::why_build_fails() const {
  if (const auto failure = build_failure()) return failure->why;
  for (const int each : members_.members()) {
    if (member_states_.is_lost(each)) return text("rank ", each, " is gone");
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
  failed_.emplace(member_states_.rank(), part_);
  ballot_.reset();
  join();
  decision_ = ShrinkDecision{.code = code, .why = std::move(why)};
}

void ShrinkConsensus::begin_ballot(ShrinkDecision value) {
  BallotAcceptor& own = current().acceptor;
  highest_ = std::max(highest_, own.promised());
  const auto members = static_cast<std::uint64_t>(member_states_.size());
  highest_ = (highest_ / members + 1) * members + static_cast<std::uint64_t>(member_states_.rank());
  own.promise_own(highest_);
  ballot_.emplace(highest_, member_states_.rank(), std::move(value), own);
  send_to_all(PrepareMessage{highest_, member_states_.ended()});
}

void ShrinkConsensus::advance_ballot() {
  if (!ballot_->is_proposed() && member_states_.may_go_on(ballot_->supporters())) {
    ballot_->propose();
    current().acceptor.accept(ballot_->number(), ballot_->value());
    send_to_all(ProposeMessage{ballot_->number(), ballot_->value()});
  }
  if (ballot_->is_proposed() && member_states_.may_go_on(ballot_->supporters()))
    decide(ShrinkDecision(ballot_->value()));
}

}  // namespace lockstep::shrinking
