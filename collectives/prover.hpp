// SPDX-License-Identifier: Apache-2.0
// What prove does, in two files: members that post rounds, meet and go on; and the judgement of what they hold at
// the end. A part of the proof; nothing else uses it.
#pragma once

#include <deque>
#include <optional>

#include "collectives/prove.hpp"
#include "collectives/symbols.hpp"

namespace lockstep::symbols {

struct Fault {
  std::string text;
};

// A slice where it lies: scratch is one memory; input and output are two, or one when in place.
struct Location {
  int memory;
  std::int64_t begin;
  std::int64_t end;
  bool operator==(const Location&) const = default;
  bool overlaps(const Location& other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
};

struct PostedMessage {
  int member;
  int peer;
  Location where;
  std::size_t begun;  // when the round was posted
};

struct MemberState {
  const Schedule* schedule = nullptr;
  Shape shape;
  std::size_t extents[3] = {};    // by Space
  std::optional<Overlap> as_one;  // where input and output are one memory
  std::size_t round = 0;
  int lap = 0;
  bool posted = false;
  std::size_t waiting = 0;  // messages of the round that are not through
  std::size_t begun = 0;
  std::size_t ended = 0;  // of the messages that are through
  std::size_t sent = 0;
  SymbolicMemory memories[3];        // by Space; in place the input's is the output's
  std::vector<PostedMessage> sends;  // posted, not yet met, in their order
  std::vector<PostedMessage> receives;
  const std::vector<IntraNodeStep>* near = nullptr;  // it waits there for the others of its node
  std::vector<bool> heard;                           // whose start lies before now
  std::vector<bool> told;                            // what it had heard when it posted its round
  bool done() const { return round == schedule->rounds.size(); }
};

// The schedules of all members at work under rendezvous rules.
class ScheduleProver {
 public:
  ScheduleProver(const Problem& problem, std::span<const Schedule> schedules)
      : problem_(problem), expressions_(problem.size), members_(static_cast<std::size_t>(problem.size)) {
    for (int i = 0; i < problem.size; ++i) begin_member(i, schedules[static_cast<std::size_t>(i)]);
  }

  Proof run();

 private:
  MemberState& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  const Round& round_of(const MemberState& member) const { return member.schedule->rounds[member.round]; }

  void begin_member(int index, const Schedule& schedule);
  Location locate(int index, const Slice& slice) const;
  void post(int index);
  void check_races(int index, std::size_t first_send, std::size_t first_receive);
  void match(PostedMessage& send, PostedMessage& receive);
  bool find_partner(std::vector<PostedMessage>& sends, std::vector<PostedMessage>& receives, int from, int to);
  void end_round(int index);
  // In prove_intra_node.cpp: what the members of a node do in the memory that they share.
  struct MemberInput {
    int member;
    Location where;
  };
  struct NodeResult {
    int member;
    Location where;
    std::vector<SymbolicRange> pieces;  // from its beginning
  };
  const IntraNodeStep& near_of(int index, std::size_t which) const {
    return (*members_[static_cast<std::size_t>(index)].near)[which];
  }
  bool all_are_near(int index) const;
  void meet_near(int index);
  void do_near(const std::vector<int>& members, std::size_t which);
  void check_near(int index, const IntraNodeStep& first, const IntraNodeStep& mine) const;
  void check_apart(int index, const IntraNodeStep& near, std::size_t local, const Slice& to) const;
  std::vector<MemberInput> given_to(const std::vector<int>& members, std::size_t which, std::size_t taker, int block);
  NodeResult combined(const std::vector<MemberInput>& parts, int taker, const Location& to);
  Expression balanced(const std::vector<Expression>& parts, std::size_t first, std::size_t last);
  void do_local(int index, const LocalStep& local, int lap);
  void reduce(int index, const Location& target, const Location& left, const Location& right);
  void read(int index, const Location& where, std::vector<SymbolicRange>& pieces, std::string_view doing);
  void check_deadlock() const;
  // In prove_result.cpp: whether what a member has at the end is what it was promised.
  void check_result(int index, Proof& proof);
  void check_piece(int index, std::int64_t begin, std::int64_t end, int first, int last, std::int64_t shift,
                   Proof& proof);
  void check_gaps(int index);
  void check_same(int index);

  [[noreturn]] void fail(int index, std::string_view what) const;

  const Problem& problem_;
  Expressions expressions_;
  std::vector<MemberState> members_;
  std::deque<int> ready_;
  std::vector<SymbolicRange> left_;
  std::vector<SymbolicRange> right_;
};

}  // namespace lockstep::symbols
