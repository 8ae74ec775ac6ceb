// SPDX-License-Identifier: Apache-2.0
// Steps in which the last member to arrive combines for all, in every order that members can get on in: nobody reads a
// slot or a result that is being written, or that holds another step, the counts of a step never meet those of another
// one, and all get on. Such steps may stand among others, in which everybody needs everybody.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "collectives/node/room.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct Rules {
  int ring = static_cast<int>(node::slot_ring);
  int behind = static_cast<int>(node::slot_ring - node::in_use);
  bool resets = true;  // the count, before the result is published
};

enum class At : std::uint8_t { wait_free, write, publish, arrive, read_slots, write_result, wait, read, over };

struct Member {
  int step = 0;
  At at = At::wait_free;
  auto operator<=>(const Member&) const = default;
};

struct State {
  std::array<Member, 4> members = {};
  std::array<int, 4> published = {-1, -1, -1, -1};
  std::array<int, 8> arrived = {};                               // by place in the ring
  std::array<int, 8> result = {-1, -1, -1, -1, -1, -1, -1, -1};  // whose result is there
  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(int members, std::vector<bool> gathers, Rules rules)
      : n_(members), gathers_(std::move(gathers)), rules_(rules) {}

  // "" or what went wrong.
  std::string run() {
    std::set<State> seen = {State()};
    std::vector<State> open = {State()};
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      bool is_over = true;
      bool moved = false;
      for (int member = 0; member < n_; ++member) {
        is_over &= state.members[index(member)].at == At::over;
        State next = state;
        if (!move(next, member)) continue;
        moved = true;
        if (const std::string wrong = fault(next); !wrong.empty()) return wrong;
        if (seen.insert(next).second) open.push_back(next);
      }
      if (!moved && !is_over) return "nobody gets on";
    }
    states = seen.size();
    return {};
  }
  std::size_t states = 0;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool gathers(int step) const { return gathers_[index(step)]; }
  bool all_published(const State& state, int step) const {
    for (int other = 0; other < n_; ++other) {
      if (state.published[index(other)] < step) return false;
    }
    return true;
  }

  // One thing further, where it can.
  bool move(State& state, int me) const {
    Member& mine = state.members[index(me)];
    const int place = mine.step % rules_.ring;
    switch (mine.at) {
      case At::wait_free:
        for (int other = 0; other < n_; ++other) {
          if (other != me && state.published[index(other)] < mine.step - rules_.behind) return false;
        }
        mine.at = At::write;
        return true;
      case At::write:
        mine.at = At::publish;
        return true;
      case At::publish:
        state.published[index(me)] = mine.step;
        mine.at = gathers(mine.step) ? At::arrive : At::wait;
        return true;
      case At::arrive:
        mine.at = ++state.arrived[index(place)] == n_ ? At::read_slots : At::wait;
        if (mine.at == At::read_slots && rules_.resets) state.arrived[index(place)] = 0;
        return true;
      case At::read_slots:
        mine.at = At::write_result;
        return true;
      case At::write_result:
        state.result[index(place)] = mine.step;
        mine.at = At::read;
        return true;
      case At::wait:
        if (gathers(mine.step) ? state.result[index(place)] != mine.step : !all_published(state, mine.step))
          return false;
        mine.at = At::read;
        return true;
      case At::read:
        ++mine.step;
        mine.at = mine.step == static_cast<int>(gathers_.size()) ? At::over : At::wait_free;
        return true;
      default:
        return false;
    }
  }

  std::string fault(const State& state) const {
    for (int reader = 0; reader < n_; ++reader) {
      const Member& mine = state.members[index(reader)];
      const bool reads_slots = mine.at == At::read_slots || (mine.at == At::read && !gathers(mine.step));
      const bool reads_result = mine.at == At::read && gathers(mine.step);
      for (int other = 0; other < n_; ++other) {
        const Member& theirs = state.members[index(other)];
        const bool same_place = theirs.step % rules_.ring == mine.step % rules_.ring && theirs.step != mine.step;
        if (reads_slots && theirs.at == At::write && same_place)
          return text("member ", reader, " reads slots of step ", mine.step, " while ", theirs.step, " is written");
        if (reads_result && theirs.at == At::write_result && same_place)
          return text("member ", reader, " reads the result of step ", mine.step, " while ", theirs.step,
                      " is written");
      }
      if (reads_slots && !all_published(state, mine.step)) return text("step ", mine.step, " is read too early");
      if (reads_result && state.result[index(mine.step % rules_.ring)] != mine.step)
        return text("the result of step ", mine.step, " is gone before member ", reader, " has read it");
    }
    for (const int arrived : state.arrived) {
      if (arrived > n_) return "a count has gone beyond the members";
    }
    return {};
  }

  int n_;
  std::vector<bool> gathers_;
  Rules rules_;
};

TEST(NodeGathering, IsRightInEveryOrder) {
  const std::vector<std::vector<bool>> orders = {std::vector<bool>(9, true),
                                                 {true, false, true, true, false, true, true, true, true},
                                                 {false, true, false, false, true, true, false, true, false}};
  for (int members = 2; members <= 4; ++members) {
    for (const auto& gathers : orders) {
      Search search(members, gathers, {});
      EXPECT_EQ(search.run(), "") << members;
      EXPECT_GT(search.states, 50U);
    }
  }
}

TEST(NodeGathering, NeedsWhatItDoes) {
  const std::vector<bool> gathers(9, true);
  EXPECT_NE(Search(3, gathers, {.resets = false}).run(), "");
  EXPECT_NE(Search(3, std::vector<bool>{true, false, false, true, true, false}, {.ring = 1, .behind = 1}).run(), "");
}

}  // namespace
}  // namespace lockstep
