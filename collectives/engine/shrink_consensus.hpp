// SPDX-License-Identifier: Apache-2.0
// Implements the agreement of a communicator's surviving members on their new membership: the state of one member, and
// its messages. It is a value without clock or transport; the caller passes both. So the same code runs under tests
// that draw every order of events.
//
// Members agree turn by turn. The first turn decides on the members that build a communicator. Each later turn decides
// that all have built their part, or on other members to try with if a member was lost meanwhile. So no member goes on
// before all could.
//
// A turn is a consensus in the manner of Paxos. The lowest rank that is not lost leads it, and proposes when all have
// joined. A leader must ask for all that was accepted before it proposes. It has decided when enough members have
// accepted.
//
// One set of enough members is all but those whose processes are known to have ended, however many these are. Each
// member answers only after it has seen these processes end itself. So it has received all of their messages.
//
// Another one is more than half of all members that there ever were, or exactly half including rank 0. So of two parts
// of a network, each of which considers the other lost, only one goes on.
//
// A member that knows a decision tells it to all before it goes on. So no member depends on one that has gone on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/member_states.hpp"
#include "collectives/engine/shrink_ballot.hpp"
#include "collectives/engine/shrink_message.hpp"
#include "collectives/engine/shrink_timer.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange.hpp"

namespace lockstep::shrinking {

// Runs one member's side of the consensus. The caller calls begin() once, then passes losses, messages and the time,
// sends take_outgoing(), and looks at verdict().
class ShrinkConsensus {
 public:
  using PeerState = MemberStates::PeerState;

  // `name` is the communicator's name for errors. `wait_limits` bounds the time of a turn; a zero limit means none.
  ShrinkConsensus(int rank, int size, WaitLimits wait_limits, std::string name);

  // Begins the first turn.
  void begin(Duration now);
  // Reports a peer's state. Only a worse state than before counts. If the peer has ended, the caller must have passed
  // all of its messages before.
  void report_state(int peer, PeerState peer_state);
  // Takes a message from a peer. Throws Error bad_message if the bytes are no valid message.
  void handle(int peer, std::span<const std::byte> bytes);
  // Advances the consensus as time passes: warns, leads, proposes, gives up. Never blocks.
  void move(Duration now);

  // Holds a message that the caller must send to a peer.
  struct OutgoingMessage {
    int peer;
    Bytes bytes;
  };
  // Returns the messages to send since the last call, in their order.
  std::vector<OutgoingMessage> take_outgoing() { return std::exchange(outgoing_, {}); }
  // Returns a warning for the log, at most one a turn.
  std::optional<std::string> take_warning() { return std::exchange(warning_, {}); }

  // Returns the decision of this turn; nothing before it is known.
  const std::optional<ShrinkDecision>& verdict() const { return decision_; }
  std::uint32_t turn() const { return turn_; }
  // Reports the result of building this member's part after a verdict of `build`. Begins the next turn.
  void report_build(const BuildResult& part, Duration now);
  // Returns the reason, in words, if other members' messages show that the present build will fail. Returns nothing
  // otherwise.
  std::optional<std::string> why_build_fails() const;
  // Ends the consensus for this member with an error, and tells the other members.
  void give_up(Code code, std::string why);

 private:
  // Records the messages of a turn.
  struct Turn {
    std::map<int, JoinMessage> joined;
    BallotAcceptor acceptor;
  };

  Turn& current() { return turns_[turn_]; }
  void send(int peer, const ShrinkMessage& message) { outgoing_.push_back({peer, to_bytes(message)}); }
  void send_to_all(const ShrinkMessage::Content& content);
  void join();
  void handle(int peer, std::uint32_t turn, const JoinMessage& message);
  void handle(int peer, std::uint32_t turn, const PrepareMessage& message);
  void handle(int peer, std::uint32_t turn, const PromiseMessage& message);
  void handle(int peer, std::uint32_t turn, const ProposeMessage& message);
  void handle(int peer, std::uint32_t turn, const AcceptMessage& message);
  void handle(int peer, std::uint32_t turn, const RefuseMessage& message);
  void handle(int peer, std::uint32_t turn, const DecidedMessage& message);
  void answer(std::uint32_t turn, const BallotAcceptor::Answers& answers);

  bool leads() const;
  void begin_ballot(ShrinkDecision value);
  void advance_ballot();
  void decide(const ShrinkDecision& verdict);

  std::optional<ShrinkDecision> choose();
  std::optional<ShrinkDecision> choose_of_all(const IndexSet& here);
  std::optional<ShrinkDecision> build_failure() const;
  std::optional<ShrinkDecision> unreachable_pair(const IndexSet& here);
  void give_up_if_stuck();
  IndexSet missing();
  std::string title() const { return text("shrink of \"", name_, '"'); }

  std::string name_;
  MemberStates member_states_;
  TurnTimer timer_;
  std::uint32_t turn_ = 0;
  std::map<std::uint32_t, Turn> turns_;
  // Holds this member's build result in this turn.
  BuildResult part_;
  // Holds by rank the members that will never build their part.
  std::map<int, BuildResult> failed_;
  // Holds the members of the last build.
  IndexSet members_;
  std::optional<ShrinkDecision> decision_;
  // Holds the ballot that this member leads.
  std::optional<Ballot> ballot_;
  // Holds the highest ballot that this member has heard of.
  std::uint64_t highest_ = 0;
  Duration next_ballot_{};
  std::vector<OutgoingMessage> outgoing_;
  std::optional<std::string> warning_;
};

}  // namespace lockstep::shrinking
