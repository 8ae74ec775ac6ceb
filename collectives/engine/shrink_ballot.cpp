// SPDX-License-Identifier: Apache-2.0
// Implements the acceptor and the ballot of a Paxos.
#include "collectives/engine/shrink_ballot.hpp"

#include <algorithm>

namespace lockstep::shrinking {

BallotAcceptor::Answers BallotAcceptor::handle(int leader, const PrepareMessage& request, const IndexSet& ended) {
  if (decided_) return {{leader, DecidedMessage{*decided_}}};
  if (request.ballot <= promised_) return {{leader, RefuseMessage{promised_}}};
  if (waiting_ && waiting_->second.ballot >= request.ballot) return {};
  waiting_ = {leader, request};
  return answer_waiting(ended);
}

BallotAcceptor::Answers BallotAcceptor::answer_waiting(const IndexSet& ended) {
  if (!waiting_ || decided_ || !ended.contains(waiting_->second.ended)) return {};
  const auto [leader, request] = *std::exchange(waiting_, {});
  if (request.ballot <= promised_) return {{leader, RefuseMessage{promised_}}};
  promised_ = request.ballot;
  Answers answers{{leader, PromiseMessage{promised_, accepted_in_, accepted_.value_or(ShrinkDecision{})}}};
  if (const auto early = std::exchange(early_, {})) {
    const Answers more = handle(leader, *early);
    answers.insert(answers.end(), more.begin(), more.end());
  }
  return answers;
}

BallotAcceptor::Answers BallotAcceptor::handle(int leader, const ProposeMessage& proposal) {
  if (decided_) return {{leader, DecidedMessage{*decided_}}};
  if (waiting_ && waiting_->second.ballot == proposal.ballot) {
    early_ = proposal;
    return {};
  }
  if (proposal.ballot != promised_) return {{leader, RefuseMessage{std::max(promised_, proposal.ballot)}}};
  accept(proposal.ballot, proposal.verdict);
  return {{leader, AcceptMessage{proposal.ballot}}};
}

Ballot::Ballot(std::uint64_t number, int rank, ShrinkDecision chosen, const BallotAcceptor& own)
    : number_(number), rank_(rank), value_(std::move(chosen)), supporters_{rank} {
  if (!own.accepted()) return;
  value_ = *own.accepted();
  accepted_in_ = own.accepted_in();
}

void Ballot::handle(int peer, const PromiseMessage& answer) {
  if (answer.ballot != number_ || is_proposed_) return;
  supporters_.insert(peer);
  if (answer.accepted_in <= accepted_in_) return;
  accepted_in_ = answer.accepted_in;
  value_ = answer.accepted;
}

void Ballot::handle(int peer, const AcceptMessage& answer) {
  if (answer.ballot == number_ && is_proposed_) supporters_.insert(peer);
}

void Ballot::propose() {
  is_proposed_ = true;
  supporters_ = {rank_};
}

}  // namespace lockstep::shrinking
