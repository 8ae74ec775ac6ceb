// SPDX-License-Identifier: Apache-2.0
// How the members that are left of a communicator agree on who they are: what one of them knows and says. A value
// without a clock or a transport; both are told to it, so that the same code runs under tests that draw every order.
//
// They agree turn by turn. In the first one on whom to build a communicator with; in each later one on whether all have
// built their part, or on whom to try it with then, if somebody was lost meanwhile. So nobody goes on before all could.
//
// A turn is a consensus in the manner of Paxos, led by the lowest rank that is not lost, which proposes when all have
// joined. The rules are that a leader has asked for all that was accepted before it proposes, and has decided when
// those have accepted that count:
//   - all but those whose processes are known to have ended, however many: each answers only when it has itself seen
//     them end, and so heard all that they said;
//   - or more than half of all there ever were, or just half with rank 0: so of two parts of a network, each of which
//     holds the other for lost, only one goes on.
// Whoever knows what was decided tells all before it goes on, so that nobody needs anybody who has gone on.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/shrink_message.hpp"
#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep::shrinking {

class ShrinkConsensus {
 public:
  using Fate = Transport::Fate;

  ShrinkConsensus(int rank, int size, Patience patience, std::string name);

  void begin(Duration now);
  // A peer's fate; only what is worse than before counts. All that was heard of one that has ended comes before.
  void lose(int peer, Fate fate);
  // Throws Error bad_message.
  void hear(int peer, std::span<const std::byte> bytes);
  void move(Duration now);

  struct OutgoingMessage {
    int peer;
    Bytes bytes;
  };
  std::vector<OutgoingMessage> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::optional<std::string> take_warning() { return std::exchange(warning_, {}); }

  // Of the turn; nothing yet.
  const std::optional<ShrinkDecision>& verdict() const { return verdict_; }
  std::uint32_t turn() const { return turn_; }
  // After a verdict of build: this member's part is made, or why not. The next turn begins.
  void built(const BuildResult& part, Duration now);
  // While that is being built: why it will come to nothing, by what others have said. In words.
  std::optional<std::string> why_in_vain() const;
  // This member ends the matter by itself, and says so.
  void give_up(Code code, std::string why);

 private:
  // What this member has heard, promised and accepted in a turn.
  struct ConsensusRound {
    std::map<int, JoinMessage> joined;
    std::uint64_t promised = 0;
    std::uint64_t accepted_in = 0;
    std::optional<ShrinkDecision> accepted;
    std::optional<std::pair<int, PrepareMessage>> asked;  // waits until this member has lost those, too
    std::optional<ProposeMessage> early;                  // of the same ballot
    std::optional<ShrinkDecision> decided;
  };
  // A ballot of this member's.
  struct Ballot {
    std::uint64_t number;
    ShrinkDecision value;
    std::uint64_t accepted_in = 0;  // where the value was not chosen freely
    bool proposes = false;
    std::set<int> promises;
    std::set<int> accepts;
  };

  ConsensusRound& current() { return rounds_[turn_]; }
  void say(int peer, const ShrinkMessage& message) { outgoing_.push_back({peer, to_bytes(message)}); }
  void say_all(const ShrinkMessage& message);
  void join();
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const JoinMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const PrepareMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const PromiseMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const ProposeMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const AcceptMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const RefuseMessage& word);
  void hear(int peer, ConsensusRound& turn, std::uint32_t number, const DecidedMessage& word);
  void promise(ConsensusRound& turn, std::uint32_t number);
  void leave_ballot_below(std::uint64_t promised, std::uint32_t number);

  bool leads(Duration now) const;
  void begin_ballot(ShrinkDecision value);
  void advance_ballot();
  bool counts(const std::set<int>& who) const;
  bool may_go_on(const IndexSet& who) const;
  void decide(const ShrinkDecision& verdict);
  void take(const ShrinkDecision& verdict);

  std::optional<ShrinkDecision> choose(Duration now);
  std::optional<ShrinkDecision> choose_of_all(const IndexSet& here, Duration now);
  std::optional<ShrinkDecision> trouble() const;
  std::optional<ShrinkDecision> out_of_reach(const IndexSet& here);
  bool is_doubt_over(Duration now);
  void warn(Duration now);
  void look_whether_stuck(Duration now);

  bool is_lost(int peer) const { return fates_[static_cast<std::size_t>(peer)] != Fate::here; }
  bool has_ended(int peer) const { return fates_[static_cast<std::size_t>(peer)] == Fate::ended; }
  template <class Predicate>
  IndexSet those(const Predicate& predicate) const;
  IndexSet lost() const;
  IndexSet ended() const;
  IndexSet here() const;
  IndexSet missing();
  std::string what() const;
  bool has_limit() const { return patience_.limit > Duration{}; }
  bool is_late(Duration now) const { return has_limit() && now - since_ > patience_.limit; }

  int rank_;
  int size_;
  Patience patience_;
  std::string name_;
  std::vector<Fate> fates_;
  std::uint32_t turn_ = 0;
  std::map<std::uint32_t, ConsensusRound> rounds_;
  BuildResult part_;                   // of this member, in this turn
  std::map<int, BuildResult> failed_;  // by rank, whose part will never be made
  IndexSet members_;                   // with whom it was built last
  std::optional<ShrinkDecision> verdict_;
  std::optional<Ballot> ballot_;
  std::uint64_t highest_ = 0;  // ballot that this member has heard of
  Duration now_{};
  Duration since_{};
  Duration next_ballot_{};
  std::optional<Duration> doubt_since_;
  bool warned_ = false;
  std::vector<OutgoingMessage> outgoing_;
  std::optional<std::string> warning_;
};

}  // namespace lockstep::shrinking
