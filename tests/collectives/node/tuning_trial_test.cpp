// SPDX-License-Identifier: Apache-2.0
// Trials of thresholds in running programs: which calls they compare, and that all members decide alike.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/node/tuning_trial.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/node/node_case.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using node::Neighbours;
using node::TrialVote;
using node::Tuning;
using node::TuningTrial;

Spec all_reduce_of(std::size_t bytes) {
  return {.type = DataType::f32, .element_bytes = sizeof(float), .count = bytes / sizeof(float)};
}

std::string names_of(const Neighbours& found) {
  std::string all;
  for (std::size_t i = 0; i < found.count; ++i)
    all += text(node::tuning_fields()[found.all[i].field].name, ' ', found.all[i].value, ' ');
  return all;
}

constexpr Tuning plain = {.two_phase_from = 16384,
                          .segment = 65536,
                          .step = 65536,
                          .flow_from = node::never,
                          .spread_from = node::never,
                          .stream_from = 1U << 24U,
                          .slow_write_from = node::never,
                          .direct_from = 4096,
                          .process_read_from = node::never,
                          .each_combines_from = 1};

TEST(TuningTrial, ComparesReadingInProcessesWhereItCanChangeACall) {
  Tuning reading = plain;
  reading.process_read_from = 1U << 17U;
  const auto has_it = [&](const Spec& spec) {
    return names_of(node::neighbours_of(reading, spec, 2, 256U << 10U)).find("process_read_from") != std::string::npos;
  };
  EXPECT_TRUE(has_it({.collective = Collective::all_gather, .count = 1U << 15U}));
  EXPECT_FALSE(has_it({.collective = Collective::broadcast, .count = 1U << 15U}));
  reading.stream_from = 1U << 17U;
  EXPECT_FALSE(has_it({.collective = Collective::all_gather, .count = 1U << 15U}));
}

TEST(TuningTrial, ComparesCallsNearASwitchPointOnly) {
  const auto near = [](const Spec& spec) { return names_of(node::neighbours_of(plain, spec, 2, 256U << 10U)); };
  EXPECT_EQ(near(all_reduce_of(8)), "");
  EXPECT_EQ(near(all_reduce_of(2048)), "");
  EXPECT_EQ(near(all_reduce_of(8192)), "two_phase_from 8192 ");
  EXPECT_EQ(near(all_reduce_of(16384)), "two_phase_from 32768 ");
  EXPECT_EQ(near(all_reduce_of(1U << 20U)), "segment 131072 segment 32768 ");
  EXPECT_EQ(near({.collective = Collective::all_gather, .count = 1U << 16U}), "step 131072 step 32768 ");
  EXPECT_EQ(near({.collective = Collective::all_gather_v, .count = 1U << 16U}), "") << "counts are not agreed on";
  EXPECT_EQ(near({.collective = Collective::barrier}), "");
}

TEST(TuningTrial, OneMemberOrAFewPairsDoNotDecide) {
  constexpr std::size_t pairs = node::trial_pairs;
  const auto decides = [](TrialVote one, TrialVote other) {
    return node::is_clearly_behind(std::array{one, other}, pairs);
  };
  EXPECT_TRUE(decides({.wins = 10, .gain_permille = 300}, {.wins = 9, .gain_permille = 200}));
  EXPECT_FALSE(decides({.wins = 10, .gain_permille = 300}, {.wins = 4, .gain_permille = 0})) << "too few pairs";
  EXPECT_FALSE(decides({.wins = 10, .gain_permille = 60}, {.wins = 10, .gain_permille = 60})) << "less than a tenth";
  EXPECT_FALSE(decides({.wins = 0, .gain_permille = -300}, {.wins = 0, .gain_permille = -300}));
  EXPECT_FALSE(node::is_clearly_behind({}, pairs));
}

TEST(TuningTrial, AVoteKeepsItsSign) {
  const TrialVote vote = TrialVote::of(std::array{1.0, 1.0, 1.0}, std::array{2.0, 2.0, 0.5});
  EXPECT_EQ(vote.wins, 1U);
  EXPECT_EQ(vote.gain_permille, -693);
  EXPECT_EQ(TrialVote::unpack(vote.pack()).gain_permille, -693);
  EXPECT_EQ(TrialVote::unpack(vote.pack()).wins, 1U);
}

// Runs calls of two members as the engine does: each asks for its tuning, tells its time, and publishes the next call's
// step. The second member is `lag` calls behind, as far as a ring of lines allows.
class TrialRun {
 public:
  using Seconds = std::function<double(int member, const Tuning& tuning)>;
  explicit TrialRun(std::uint64_t lag = node::line_ring - 2) : lag_(lag), rooms_(test::rooms(2, true)) {
    for (auto& room : rooms_) {
      room->thresholds().set(plain);
      trials_.emplace_back(room.get());
    }
  }

  void run(std::uint64_t calls, const std::function<Spec(std::uint64_t)>& spec_of, const Seconds& seconds) {
    std::vector<Tuning> of_first;
    const auto call = [&](int member, std::uint64_t turn) {
      const auto m = static_cast<std::size_t>(member);
      const Tuning used = trials_[m].tuning_for(turn, spec_of(turn));
      if (used != rooms_[m]->tuning()) ++by_neighbour_;
      if (spec_of(turn).count > 0) rooms_[m]->ring().publish(1);
      if (trials_[m].is_timing()) trials_[m].end_call(seconds(member, used));
      return used;
    };
    for (std::uint64_t turn = 0; turn < calls + lag_; ++turn) {
      if (turn < calls) of_first.push_back(call(0, turn));
      if (turn < lag_) continue;
      const std::uint64_t late = turn - lag_;
      ASSERT_EQ(call(1, late), of_first[late]) << "in turn " << late;
    }
  }
  const Tuning& tuning() const { return rooms_.front()->tuning(); }
  std::uint32_t given_up() const { return rooms_.front()->thresholds().confidence().given_up; }
  std::uint64_t by_neighbour() const { return by_neighbour_ / 2; }

 private:
  std::uint64_t lag_;
  std::vector<std::unique_ptr<node::Room>> rooms_;
  std::vector<TuningTrial> trials_;
  std::uint64_t by_neighbour_ = 0;
};

TEST(TuningTrial, AValueThatIsBehindIsGivenUp) {
  TrialRun all;
  all.run(
      300'000, [](auto) { return all_reduce_of(8192); },
      [](int member, const Tuning& tuning) { return tuning.two_phase_from <= 8192 ? 1e-5 : 2e-5 + 1e-7 * member; });
  EXPECT_EQ(all.tuning().two_phase_from, 8192U);
  EXPECT_EQ(all.given_up(), 1U);
}

TEST(TuningTrial, AValueThatIsAheadStaysAtLittleCost) {
  TrialRun all(0);
  constexpr std::uint64_t calls = 500'000;
  all.run(
      calls, [](auto) { return all_reduce_of(8192); },
      [](int, const Tuning& tuning) { return tuning.two_phase_from <= 8192 ? 3e-5 : 2e-5; });
  EXPECT_EQ(all.tuning(), plain);
  EXPECT_GT(all.by_neighbour(), 0U);
  EXPECT_LT(all.by_neighbour(), calls / 200);
}

TEST(TuningTrial, FindsItsCallsAmongOthers) {
  TrialRun all;
  const auto mixed = [](std::uint64_t turn) {
    return turn % 7 == 3   ? all_reduce_of(8192)
           : turn % 2 == 0 ? all_reduce_of(8)
                           : Spec{.collective = Collective::barrier};
  };
  all.run(300'000, mixed, [](int, const Tuning& tuning) { return tuning.two_phase_from <= 8192 ? 1e-5 : 2e-5; });
  EXPECT_EQ(all.tuning().two_phase_from, 8192U);
}

// Most calls here make no step. So the first member has begun hundreds of calls since its vote while the second one has
// not finished the trial.
TEST(TuningTrial, VotesAreReadWhenAllHaveWrittenThem) {
  constexpr std::uint64_t calls_of_step = 15;
  TrialRun all(calls_of_step * (node::line_ring - 2));
  const auto rare = [](std::uint64_t turn) { return all_reduce_of(turn % calls_of_step == 0 ? 8192 : 0); };
  all.run(300'000, rare, [](int, const Tuning& tuning) { return tuning.two_phase_from <= 8192 ? 1e-5 : 2e-5; });
  EXPECT_EQ(all.tuning().two_phase_from, 8192U);
}

// Blocking, begun and prepared calls go through several trials, by thresholds in whose middle the sizes lie.
TEST(TuningTrial, ProgramsGetTheirResultsMeanwhile) {
  constexpr int calls = 30'000;
  static constexpr std::array<std::size_t, 3> sizes = {2, 1500, 6000};
  test::with_members(2, [](Communicator& world) {
    if (node::Room* const room = world.core()->member().engine().platform().room()) {
      Tuning tuning = plain;
      tuning.two_phase_from = 16384;
      tuning.step = tuning.segment = 16384;
      room->thresholds().set(tuning);
    }
    std::vector<int> data(sizes.back());
    std::vector<int> other(sizes.back());
    PreparedCall prepared = world.plan_all_reduce(data, sum);
    for (int call = 0; call < calls; ++call) {
      const auto c = static_cast<std::size_t>(call);
      const std::span<int> part = std::span(data).first(sizes.at(c % sizes.size()));
      part.front() = part.back() = call + world.rank();
      if (part.size() == data.size() && c % 2 == 0) {
        prepared.run();
      } else if (c % 5 == 0) {
        other.front() = world.rank() == call % 2 ? call : -1;
        Request moved = world.broadcast_async(std::span(other), call % 2);
        world.all_reduce(part, sum);
        moved.wait();
        ASSERT_EQ(other.front(), call) << "call " << call;
      } else {
        world.all_reduce(part, sum);
      }
      ASSERT_EQ(part.front(), 2 * call + 1) << "call " << call;
      ASSERT_EQ(part.back(), 2 * call + 1) << "call " << call;
    }
  });
}

}  // namespace
}  // namespace lockstep
