// SPDX-License-Identifier: Apache-2.0
// Executes schedules for prove(), in three files. Members post rounds, meet and go on; then each member's results are
// judged. Only the proof uses it.
#pragma once

#include <deque>
#include <optional>

#include "collectives/prove.hpp"
#include "collectives/symbols.hpp"

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
  const std::vector<IntraNodeStep>* near = nullptr;  // not null: it waits in its node's memory for the others
  std::vector<bool> heard;                           // by member: its start lies before now
  std::vector<bool> told;                            // a copy of `heard` from the time when it posted its round
  bool done() const { return round == schedule->rounds.size(); }
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
  const Round& round_of(const MemberState& member) const { return member.schedule->rounds[member.round]; }

  void begin_member(int index, const Schedule& schedule);
  Location locate(int index, const Slice& slice) const;
  void post(int index);
  void check_races(int index, std::size_t first_send, std::size_t first_receive);
  void match(PostedMessage& send, PostedMessage& receive);
  bool find_partner(std::vector<PostedMessage>& sends, std::vector<PostedMessage>& receives, int from, int to);
  void end_round(int index);
  // Execute and check the rounds in a node's memory; prove_intra_node.cpp defines these members.
  struct MemberInput {
    int member;
    Location where;
  };
  struct NodeResult {
    int member;
    Location where;
    std::vector<SymbolicRange> pieces;  // offsets from the beginning of `where`
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
  // Check that a member's data at the end is the promised result; prove_result.cpp defines these members.
  void check_result(int index, Proof& proof);
  void check_piece(int index, std::int64_t begin, std::int64_t end, int first, int last, std::int64_t shift,
                   Proof& proof);
  void check_gaps(int index);
  void check_same(int index);

  // Throws a Fault that names the member, its round and its lap.
  [[noreturn]] void fail(int index, std::string_view what) const;

  const Problem& problem_;
  Expressions expressions_;
  std::vector<MemberState> members_;
  std::deque<int> ready_;
  std::vector<SymbolicRange> left_;
  std::vector<SymbolicRange> right_;
};

}  // namespace lockstep::symbols
