// SPDX-License-Identifier: Apache-2.0
// Executes schedules for prove(). Members post rounds, meet and go on; then each member's results are judged. Only the
// proof uses it.
#pragma once

#include <deque>
#include <optional>

#include "tests/collectives/prove.hpp"
#include "tests/collectives/symbols.hpp"

namespace lockstep::symbols {

// Is thrown when a schedule is wrong.
struct Fault {
  std::string text;
};

// Is a slice at its place. Scratch is one memory; input and output are two, or one if in place.
struct Location {
  int memory;
  std::int64_t begin;
  std::int64_t end;
  bool operator==(const Location&) const = default;
  bool overlaps(const Location& other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
};

// Is one end of a message that its member has posted.
struct PostedMessage {
  int member;
  int peer;
  Location where;
  std::size_t begun;  // rounds that came before it
};

// Is the state of one member between two rounds or in one.
struct MemberState {
  int index = 0;
  const Schedule* schedule = nullptr;
  Shape shape;
  std::size_t extents[3] = {};    // elements of each Space
  std::optional<Overlap> as_one;  // set if input and output are one memory
  std::size_t round = 0;
  int lap = 0;
  bool posted = false;
  std::size_t waiting = 0;  // messages of the round that are not through
  std::size_t begun = 0;
  std::size_t ended = 0;  // rounds before the end of the messages that are through
  std::size_t sent = 0;
  SymbolicMemory memories[3];        // by Space; in place the input's is the output's
  std::vector<PostedMessage> sends;  // posted and not yet matched, in their order
  std::vector<PostedMessage> receives;
  const std::vector<IntraNodeStep>* node_steps = nullptr;  // not null: it waits in its node's memory for the others
  std::vector<bool> heard;                                 // by member: its start lies before now
  std::vector<bool> told;                                  // a copy of `heard` from the time when it posted its round
  bool done() const { return round == schedule->rounds.size(); }
  const Round& current() const { return schedule->rounds[round]; }
  // Returns the place of the slice. Throws Fault if it lies outside.
  Location locate(const Slice& slice) const;
  // Returns the values there in `pieces`. Throws Fault if one was never set; `doing` says what needs it.
  void read(const Location& where, std::vector<SymbolicRange>& pieces, std::string_view doing) const;
  // Throws a Fault that names the member, its round and its lap.
  [[noreturn]] void fail(std::string_view what) const;
};

// Executes and checks the rounds in a node's memory. When all members of the node have come, the whole round happens at
// once. The references must outlive this object.
class IntraNodeProver {
 public:
  IntraNodeProver(std::vector<MemberState>& members, Expressions& expressions)
      : members_(members), expressions_(expressions) {}

  // Does the round of this member's node if all its members have come, and returns the other members, which then go on.
  // Otherwise returns none.
  std::vector<int> meet(int index);

 private:
  struct MemberInput {
    int member;
    Location where;
  };
  struct NodeResult {
    int member;
    Location where;
    std::vector<SymbolicRange> pieces;  // offsets from the beginning of `where`
  };

  MemberState& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  const IntraNodeStep& step_of(int member, std::size_t which) { return (*at(member).node_steps)[which]; }
  bool have_all_come(const MemberState& member);
  void run_step(const std::vector<int>& members, std::size_t which);
  static void check_step(const MemberState& member, const IntraNodeStep& first, const IntraNodeStep& mine);
  static void check_apart(const MemberState& member, const IntraNodeStep& node_step, std::size_t local,
                          const Slice& to);
  std::vector<MemberInput> given_to(const std::vector<int>& members, std::size_t which, std::size_t taker, int block);
  NodeResult combined(const std::vector<MemberInput>& parts, int taker, const Location& to);
  Expression balanced(const std::vector<Expression>& parts, std::size_t first, std::size_t last);

  std::vector<MemberState>& members_;
  Expressions& expressions_;
};

// Judges the data that members hold at the end. The references must outlive this object.
class ResultProver {
 public:
  ResultProver(const Problem& problem, const std::vector<MemberState>& members, Expressions& expressions)
      : problem_(problem), members_(members), expressions_(expressions) {}

  // Throws Fault if the member's data is not the promised result. Notes in the proof if it combines in another order.
  void check(int index, Proof& proof);

 private:
  const MemberState& at(int member) const { return members_[static_cast<std::size_t>(member)]; }
  void check_result(const MemberState& member, Proof& proof);
  void check_piece(const MemberState& member, std::int64_t begin, std::int64_t end, int first, int last,
                   std::int64_t shift, Proof& proof);
  void check_gaps(const MemberState& member);
  void check_same(const MemberState& member);

  const Problem& problem_;
  const std::vector<MemberState>& members_;
  Expressions& expressions_;
  std::vector<SymbolicRange> mine_;
  std::vector<SymbolicRange> first_;
};

// Executes the schedules of all members under rendezvous rules. `problem` and `schedules` must outlive it.
class ScheduleProver {
 public:
  ScheduleProver(const Problem& problem, std::span<const Schedule> schedules)
      : problem_(problem), expressions_(problem.size), members_(static_cast<std::size_t>(problem.size)) {
    for (int i = 0; i < problem.size; ++i) begin_member(i, schedules[static_cast<std::size_t>(i)]);
  }

  // Executes all rounds and returns the proof. Throws Fault if something is wrong.
  Proof run();

 private:
  MemberState& at(int member) { return members_[static_cast<std::size_t>(member)]; }

  void begin_member(int index, const Schedule& schedule);
  void post(MemberState& member);
  void match_posted(MemberState& member);
  void match(PostedMessage& send, PostedMessage& receive);
  bool find_partner(std::vector<PostedMessage>& sends, std::vector<PostedMessage>& receives, int from, int to);
  void end_round(MemberState& member);
  void do_local(MemberState& member, const LocalStep& local);
  void reduce(MemberState& member, const Location& target, const Location& left, const Location& right);
  void check_deadlock() const;

  const Problem& problem_;
  Expressions expressions_;
  std::vector<MemberState> members_;
  IntraNodeProver intra_node_{members_, expressions_};
  std::deque<int> ready_;
  std::vector<SymbolicRange> left_;
  std::vector<SymbolicRange> right_;
};

}  // namespace lockstep::symbols
