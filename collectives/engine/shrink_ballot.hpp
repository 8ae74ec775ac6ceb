// SPDX-License-Identifier: Apache-2.0
// Implements the two roles of a Paxos in one turn of a ShrinkConsensus. The acceptor promises and accepts; the ballot
// counts the promises and acceptances of others for the member that leads.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/shrink_message.hpp"

namespace lockstep::shrinking {

// Answers the leaders of one turn, and remembers its promises and the accepted proposal.
class BallotAcceptor {
 public:
  // Holds answers and their receivers, in their order.
  using Answers = std::vector<std::pair<int, ShrinkMessage::Content>>;

  // Answers a leader's request or proposal. A request waits until this member has seen the same processes end, and its
  // proposal waits with it. `ended` holds the members with ended processes.
  Answers handle(int leader, const PrepareMessage& request, const IndexSet& ended);
  Answers handle(int leader, const ProposeMessage& proposal);
  // Answers the request that waits, if it need not wait any more.
  Answers answer_waiting(const IndexSet& ended);

  // Promises, or accepts, this member's own ballot.
  void promise_own(std::uint64_t ballot) { promised_ = ballot; }
  void accept(std::uint64_t ballot, const ShrinkDecision& decision) {
    accepted_in_ = ballot;
    accepted_ = decision;
  }
  // Records the decision of the turn.
  void decide(const ShrinkDecision& decision) { decided_ = decision; }

  // Returns the highest ballot promised; 0 means none.
  std::uint64_t promised() const { return promised_; }
  // Returns the ballot of the accepted decision; 0 means that none was accepted.
  std::uint64_t accepted_in() const { return accepted_in_; }
  const std::optional<ShrinkDecision>& accepted() const { return accepted_; }
  const std::optional<ShrinkDecision>& decided() const { return decided_; }

 private:
  std::uint64_t promised_ = 0;
  std::uint64_t accepted_in_ = 0;
  std::optional<ShrinkDecision> accepted_;
  // Holds a leader's request until this member has seen the same processes end.
  std::optional<std::pair<int, PrepareMessage>> waiting_;
  // Holds the proposal of a ballot that this member has not promised yet.
  std::optional<ProposeMessage> early_;
  std::optional<ShrinkDecision> decided_;
};

// Counts the answers to a ballot of this member.
class Ballot {
 public:
  // Begins a ballot with this member's promise. A decision that the member has accepted replaces `chosen`.
  Ballot(std::uint64_t number, int rank, ShrinkDecision chosen, const BallotAcceptor& own);

  std::uint64_t number() const { return number_; }
  const ShrinkDecision& value() const { return value_; }
  // Counts an answer. Ignores it if it belongs to another ballot, or to the other phase. The accepted decision of the
  // highest earlier ballot replaces the value.
  void handle(int peer, const PromiseMessage& answer);
  void handle(int peer, const AcceptMessage& answer);
  // Begins the second phase, with this member's acceptance.
  void propose();
  bool is_proposed() const { return is_proposed_; }
  // Returns the members that have answered in the present phase.
  const IndexSet& supporters() const { return supporters_; }

 private:
  std::uint64_t number_;
  int rank_;
  ShrinkDecision value_;
  // Names the earlier ballot that the value was taken from; 0 means that it was chosen freely.
  std::uint64_t accepted_in_ = 0;
  bool is_proposed_ = false;
  IndexSet supporters_;
};

}  // namespace lockstep::shrinking
