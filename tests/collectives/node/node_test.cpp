// SPDX-License-Identifier: Apache-2.0
// The room and the work in it, member by member in one thread: every order in which members get on is one that the
// test chooses, so a step that is read too late or written too early is seen, and seen again with the same seed.
#include <gtest/gtest.h>

#include "collectives/node/segment_flow.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/node/node_case.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using node::NodeCollective;
using node::Tuning;
using test::Case;
using test::case_of;
using test::Member;
using test::plan_of;
using test::rooms;
using test::run;
using test::values;

constexpr std::array every = {
    Collective::all_reduce,   Collective::reduce,   Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,    Collective::gather,   Collective::scatter,        Collective::all_to_all,
    Collective::scan,         Collective::exscan,   Collective::barrier,        Collective::reduce_scatter_v,
    Collective::all_gather_v, Collective::gather_v, Collective::scatter_v,      Collective::all_to_all_v,
};

// Whether members are threads of one process, or processes that may read each other's memory or may not.
enum class Reach { slots, threads, across };

class NodeCollectiveTest : public testing::TestWithParam<std::tuple<int, Reach>> {};

// One call after the other in the same rooms, from a step that is about to wrap around.
TEST_P(NodeCollectiveTest, IsRightInAnyInterleaving) {
  if (test::watched_for_races) GTEST_SKIP() << test::lacks("members in threads of their own: one thread has no races");
  const auto [members, reach] = GetParam();
  const auto n = static_cast<std::size_t>(members);
  const std::vector<pid_t> processes(reach == Reach::across ? n : 0, ::getpid());
  auto all = rooms(members, reach == Reach::threads, node::ProcessMemoryReader(processes));
  for (auto& room : all) room->ring().begin_at(static_cast<node::StepNumber>(-50));
  std::mt19937 random(4711);
  constexpr Tuning tunings[] = {{.two_phase_from = 512,
                                 .segment = 256,
                                 .step = 256,
                                 .flow_from = 1U << 20U,
                                 .spread_from = 1000,
                                 .stream_from = 1U << 15U,
                                 .slow_write_from = 0,
                                 .direct_from = 1024,
                                 .process_read_from = 1024,
                                 .each_combines_from = 64},
                                {.two_phase_from = 100,
                                 .segment = 4096,
                                 .step = 4096,
                                 .flow_from = 64,
                                 .slow_write_from = 1,
                                 .direct_from = 1U << 30U,
                                 .process_read_from = 64},
                                {.two_phase_from = 1U << 30U,
                                 .segment = 1000,
                                 .step = 1000,
                                 .flow_from = 300,
                                 .stream_from = 1U << 30U,
                                 .slow_write_from = node::never,
                                 .direct_from = 64,
                                 .process_read_from = 4096},
                                {.two_phase_from = 1U << 30U,
                                 .segment = 1U << 20U,
                                 .step = 1U << 20U,
                                 .flow_from = 1000,
                                 .spread_from = 1U << 30U,
                                 .slow_write_from = 1U << 30U,
                                 .direct_from = 1U << 30U,
                                 .process_read_from = 1U << 30U,
                                 .each_combines_from = 1U << 30U}};
  for (int round = 0; round < 4; ++round) {
    for (auto& room : all) room->buffers().set_crowded(round % 2 == 1);
    for (const Collective collective : every) {
      for (const std::size_t count : {0UL, 1UL, 3UL, 28UL, 29UL, 200UL, 1025UL, 5000UL, 60000UL}) {
        // Nearly a slot, in which there is no room for a result as well.
        if (count > 5000 && (members > 4 || round != 3 || collective != Collective::all_reduce)) continue;
        if (members == 64 && count > (test::sanitized ? 3 : 29)) continue;  // takes its time
        const int root = static_cast<int>(random() % static_cast<unsigned>(members));
        Case one = case_of(collective, members, count, root);
        ASSERT_NO_FATAL_FAILURE(run(all, one, tunings[round], random));
        for (std::size_t m = 0; m < all.size(); ++m)
          ASSERT_EQ(one.output[m], one.expected[m]) << to_string(collective) << " of " << count << ", root " << root
                                                    << ", member " << m << " of " << members << ", round " << round;
      }
    }
  }
  EXPECT_GT(static_cast<std::int32_t>(all[0]->ring().last()), 0) << "the step has wrapped around";
}
INSTANTIATE_TEST_SUITE_P(All, NodeCollectiveTest,
                         testing::Combine(testing::Values(2, 3, 4, 5, 7, 8, 64),
                                          testing::Values(Reach::slots, Reach::threads, Reach::across)));

// The output replaces the input, by which nothing may be lost that another member has still to get.
TEST(NodeCollectiveTest, StreamsInPlaceAreRightInAnyInterleaving) {
  if (test::watched_for_races) GTEST_SKIP() << test::lacks("members in threads of their own: one thread has no races");
  std::mt19937 random(815);
  for (const int members : {2, 3, 5}) {
    const auto n = static_cast<std::size_t>(members);
    auto all = rooms(members, false, node::ProcessMemoryReader(std::vector<pid_t>(n, ::getpid())));
    for (const std::size_t step : {64UL, 256UL, 4096UL}) {
      const Tuning tuning{.step = step, .flow_from = 64, .spread_from = 300, .process_read_from = node::never};
      for (const Collective collective : {Collective::scan, Collective::exscan, Collective::all_to_all_v}) {
        for (const std::size_t count : {1UL, 100UL, 1025UL, 5000UL}) {
          Case one =
              case_of(collective == Collective::all_to_all_v ? Collective::all_to_all : collective, members, count, 0);
          one.spec.collective = collective;
          one.spec.in_place = true;
          if (collective == Collective::exscan) one.expected[0] = one.input[0];
          ASSERT_NO_FATAL_FAILURE(run(all, one, tuning, random));
          for (std::size_t m = 0; m < n; ++m)
            ASSERT_EQ(one.output[m], one.expected[m]) << to_string(collective) << " of " << count << ", step " << step
                                                      << ", member " << m << " of " << members;
        }
      }
    }
  }
}

// Runs a flow in which each member gets its block of every segment from elsewhere, the next one to get on being drawn
// each time. Returns the number of members that refuse it.
int flow(std::vector<std::unique_ptr<node::Room>>& all, const Tuning& tuning, bool is_reachable, std::mt19937& random) {
  constexpr int segments = 5;
  constexpr std::size_t block = 300;
  const std::size_t members = all.size();
  const std::size_t count = segments * members * block;
  std::vector<std::vector<std::int32_t>> outputs(members, std::vector<std::int32_t>(count, -1));
  std::vector<Call> calls(members);
  std::vector<node::SegmentFlow> flows(members);
  std::vector<std::vector<bool>> is_copied(members, std::vector<bool>(segments * members));
  std::vector<std::size_t> left(members, segments * members);
  std::vector<int> ready(members);
  const Blocks blocks = Blocks::even(segments * block, static_cast<int>(members));
  for (std::size_t m = 0; m < members; ++m) {
    Plan plan{.spec = {.collective = Collective::all_gather, .type = DataType::i32, .element_bytes = 4}};
    plan.spec.count = segments * block;
    plan.spec.output_blocks = blocks;
    plan.size = static_cast<int>(members);
    plan.index = static_cast<int>(m);
    plan.input_count = plan.output_count = count;
    calls[m] = {.plan = std::make_shared<const Plan>(plan), .input = outputs[m].data(), .output = outputs[m].data()};
    all[m]->thresholds().set(tuning);
    flows[m].begin(*all[m], calls[m], is_reachable || m > 0, 7, node::AddressQueries::all);
  }
  const auto at = [&](std::size_t segment, std::size_t member) { return (segment * members + member) * block; };
  const auto is_over = [&](const node::SegmentFlow& each) {
    return each.has_ended() || each.state() == node::SegmentFlow::State::refused;
  };
  for (int turn = 0; !std::ranges::all_of(flows, is_over); ++turn) {
    if (turn > 1'000'000) throw std::runtime_error("no end of a flow");
    const std::size_t m = random() % members;
    node::SegmentFlow& mine = flows[m];
    if (!mine.is_flowing() || left[m] == 0) {
      mine.advance(node::PollLimits());
      continue;
    }
    if (ready[m] < segments && random() % 3 == 0) {
      const auto first = outputs[m].begin() + static_cast<std::ptrdiff_t>(at(static_cast<std::size_t>(ready[m]), m));
      std::fill(first, first + block, static_cast<std::int32_t>(100 * m) + ready[m]);
      is_copied[m][static_cast<std::size_t>(ready[m]) * members + m] = true;
      mine.set_ready(++ready[m]);
      if (--left[m] == 0) mine.end();
      continue;
    }
    const std::size_t segment = random() % segments;
    const std::size_t source = random() % members;
    if (source == m || is_copied[m][segment * members + source]) continue;
    if (!mine.is_ready(static_cast<int>(source), static_cast<int>(segment))) continue;
    EXPECT_TRUE(mine.copy(static_cast<int>(source), 4 * at(segment, source), 4 * block));
    is_copied[m][segment * members + source] = true;
    if (--left[m] == 0) mine.end();
  }
  const auto refused = static_cast<int>(std::ranges::count_if(
      flows, [](const node::SegmentFlow& each) { return each.state() == node::SegmentFlow::State::refused; }));
  if (refused > 0) return refused;
  for (std::size_t m = 0; m < members; ++m) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t part = i / block;
      if (outputs[m][i] == static_cast<std::int32_t>(100 * (part % members) + part / members)) continue;
      ADD_FAILURE() << "member " << m << " has " << outputs[m][i] << " at " << i;
      break;
    }
  }
  return 0;
}

// Also over step 0, and beside other calls of the room.
TEST(SegmentFlow, CopiesBlocksAsTheyComeOrIsRefusedByAll) {
  if (test::watched_for_races) GTEST_SKIP() << test::lacks("members in threads of their own: one thread has no races");
  std::mt19937 random(33);
  const Tuning reached{.two_phase_from = 512,
                       .segment = 256,
                       .step = 256,
                       .flow_from = node::never,
                       .stream_from = 1U << 20U,
                       .direct_from = 64,
                       .process_read_from = 64};
  Tuning unreached = reached;
  unreached.process_read_from = node::never;
  for (const int members : {2, 5}) {
    for (const bool is_one_process : {true, false}) {
      const std::vector<pid_t> processes(is_one_process ? 0U : static_cast<std::size_t>(members), ::getpid());
      auto all = rooms(members, is_one_process, node::ProcessMemoryReader(processes));
      for (auto& room : all) room->ring().begin_at(static_cast<node::StepNumber>(-9));
      for (int round = 0; round < 6; ++round) {
        EXPECT_EQ(flow(all, reached, true, random), 0) << members << ' ' << is_one_process;
        Case one = case_of(Collective::all_reduce, members, 700, 0);
        ASSERT_NO_FATAL_FAILURE(run(all, one, reached, random));
        EXPECT_EQ(one.output, one.expected);
        EXPECT_EQ(flow(all, reached, false, random), members) << "one member must not be reached";
        EXPECT_EQ(flow(all, unreached, true, random), is_one_process ? 0 : members);
      }
    }
  }
}

TEST(NodeCollectiveTest, CountsThatDoNotFitAreNamed) {
  auto all = rooms(2, false);
  std::mt19937 random(1);
  Case one = case_of(Collective::all_to_all_v, 2, 10, 0);
  one.counts[0] = {0, 9};
  one.counts[1] = {5, 0};
  one.input = {values(0, 9), values(1, 5)};
  one.output = {std::vector<std::int32_t>(5), std::vector<std::int32_t>(9)};
  run(all, one, {}, random);
  Case less = one;
  less.counts[0][1] = 7;
  const Plan plan = plan_of(less, 1, 2);
  const Call call{
      .plan = {std::shared_ptr<void>(), &plan}, .input = one.input[1].data(), .output = one.output[1].data()};
  Member other{.plan = plan_of(one, 0, 2), .call = {}, .work = {}};
  other.call = {
      .plan = {std::shared_ptr<void>(), &other.plan}, .input = one.input[0].data(), .output = one.output[0].data()};
  other.work.begin(*all[0], {}, other.call, static_cast<const std::byte*>(other.call.input), 5,
                   node::AddressQueries::none);
  other.work.advance({});
  NodeCollective work;
  work.begin(*all[1], {}, call, static_cast<const std::byte*>(call.input), 5, node::AddressQueries::none);
  try {
    work.advance({});
    FAIL() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_NE(std::string(error.what()).find("rank 0 sent 36 bytes to rank 1, which receives 28"), std::string::npos)
        << error.what();
  }
}

// Elements that are larger than a segment was measured to be best.
TEST(NodeCollectiveTest, LargeElementsOfOnesOwn) {
  constexpr std::size_t element = 1000;
  constexpr int members = 3;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::scan}) {
    for (const std::size_t two_phase_from : {std::size_t{1}, std::size_t{1} << 30U}) {
      auto all = rooms(members, false);
      const std::size_t in = collective == Collective::reduce_scatter ? 6 * element : 2 * element;
      std::vector<std::vector<std::uint8_t>> input;
      std::vector<std::vector<std::uint8_t>> output(members, std::vector<std::uint8_t>(2 * element));
      Plan plan{.spec = {.collective = collective,
                         .type = DataType::opaque,
                         .op = ReduceOp::user,
                         .element_bytes = element,
                         .count = 2},
                .size = members,
                .in_node = true};
      plan.spec.input_blocks = Blocks::even(2, members);
      plan.input_count = in / element;
      plan.output_count = 2;
      std::vector<Call> calls(members);
      std::vector<NodeCollective> works(members);
      for (std::size_t m = 0; m < members; ++m) input.emplace_back(in, static_cast<std::uint8_t>(m + 1));
      for (std::size_t m = 0; m < members; ++m) {
        calls[m] = {.plan = {std::shared_ptr<void>(), &plan}, .input = input[m].data(), .output = output[m].data()};
        calls[m].user.apply = [](const void*, void* target, const void* left, const void* right, std::size_t count) {
          for (std::size_t i = 0; i < count * element; ++i)
            static_cast<std::uint8_t*>(target)[i] = static_cast<std::uint8_t>(
                static_cast<const std::uint8_t*>(left)[i] + static_cast<const std::uint8_t*>(right)[i]);
        };
        works[m].begin(*all[m],
                       {.two_phase_from = two_phase_from, .segment = 256, .step = 256, .direct_from = 1U << 30U},
                       calls[m], reinterpret_cast<const std::byte*>(input[m].data()), 1, all[m]->buffers().queries());
      }
      for (int turn = 0; turn < 100; ++turn) {
        for (NodeCollective& work : works) work.advance({});
      }
      for (std::size_t m = 0; m < members; ++m) {
        ASSERT_TRUE(works[m].is_done()) << to_string(collective);
        const int sum = collective == Collective::scan ? static_cast<int>((m + 1) * (m + 2) / 2) : 6;
        ASSERT_EQ(output[m], std::vector<std::uint8_t>(2 * element, static_cast<std::uint8_t>(sum)))
            << to_string(collective);
      }
    }
  }
}

// Another call is not taken for this one, however its step is numbered.
class NodeCollectiveAlone : public testing::TestWithParam<std::size_t> {};

TEST_P(NodeCollectiveAlone, OtherCallsAreNotThere) {
  auto all = rooms(2, false);
  Case one = case_of(Collective::all_reduce, 2, 4, 0);
  std::vector<Member> crew(2);
  for (int i = 0; i < 2; ++i) {
    auto& member = crew[static_cast<std::size_t>(i)];
    member.plan = plan_of(one, i, 2);
    member.call = {.plan = {std::shared_ptr<void>(), &member.plan},
                   .input = one.input[static_cast<std::size_t>(i)].data(),
                   .output = one.output[static_cast<std::size_t>(i)].data(),
                   .kernel = find_kernel(DataType::i32, ReduceOp::sum)};
    member.work.begin(
        *all[static_cast<std::size_t>(i)], {.two_phase_from = 1U << 30U, .each_combines_from = GetParam()}, member.call,
        static_cast<const std::byte*>(member.call.input), static_cast<std::uint32_t>(i), node::AddressQueries::none);
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (Member& member : crew) member.work.advance({});
  }
  for (Member& member : crew) {
    EXPECT_FALSE(member.work.is_done());
    EXPECT_EQ(member.work.missing().size(), 1U);
  }
}

INSTANTIATE_TEST_SUITE_P(, NodeCollectiveAlone, testing::Values(1, 1U << 30U));

// All have given, and the one that was last does not come to an end.
TEST(NodeCollectiveTest, NamesTheMissingCombiner) {
  auto all = rooms(3, false);
  for (auto& room : all) {
    room->ring().publish(7);
    if (room != all[2]) {
      EXPECT_FALSE(room->results().arrives_last(1));
    }
  }
  EXPECT_TRUE(all[2]->results().arrives_last(1));
  EXPECT_EQ(all[0]->results().leader(1), 2);
  EXPECT_EQ(all[0]->results().leader(5), -1) << "of an earlier step";
  EXPECT_FALSE(all[0]->results().has_published_in(1, 7));
  all[2]->results().publish(1, 7);
  EXPECT_TRUE(all[0]->results().has_published_in(1, 7));
  EXPECT_FALSE(all[0]->results().has_published_in(1, 8));
}

// The order of additions, not only their sum: floats that forget small numbers.
TEST(NodeCollectiveTest, OrdersHaveTheSameBitsInEveryForm) {
  constexpr int members = 5;
  constexpr std::size_t count = 3000;
  for (const Order order : {Order::fast, Order::reproducible}) {
    std::vector<std::vector<float>> first;
    for (const std::size_t two_phase_from : {std::size_t{1}, std::size_t{1} << 29U, std::size_t{1} << 30U}) {
      for (const bool one_process : {false, true}) {
        const Tuning tuning{.two_phase_from = two_phase_from,
                            .segment = two_phase_from == 1 ? 4096U : 65536U,
                            .step = two_phase_from == 1 ? 4096U : 65536U,
                            .direct_from = 1024,
                            .each_combines_from = two_phase_from == std::size_t{1} << 30U ? two_phase_from : 1};
        auto all = rooms(members, one_process);
        std::mt19937 data(3);
        std::vector<std::vector<float>> input(members, std::vector<float>(count));
        std::vector<std::vector<float>> output(members, std::vector<float>(count));
        for (auto& each : input) {
          for (float& number : each)
            number = std::ldexp(static_cast<float>(data() % 1000), static_cast<int>(data() % 40));
        }
        Plan plan{.spec = {.order = order, .count = count}, .size = members, .algorithm = "node", .in_node = true};
        plan.input_count = plan.output_count = count;
        std::vector<Call> calls(members);
        std::vector<NodeCollective> works(members);
        for (std::size_t m = 0; m < members; ++m) {
          calls[m] = {.plan = {std::shared_ptr<void>(), &plan},
                      .input = input[m].data(),
                      .output = output[m].data(),
                      .kernel = find_kernel(DataType::f32, ReduceOp::sum)};
          works[m].begin(*all[m], tuning, calls[m], reinterpret_cast<const std::byte*>(input[m].data()), 1,
                         all[m]->buffers().queries());
        }
        for (int turn = 0; turn < 100; ++turn) {
          for (NodeCollective& work : works) work.advance({});
        }
        std::vector<float> by_hand(count);
        for (std::size_t i = 0; i < count; ++i) {
          const auto in = [&](std::size_t m) { return input[m][i]; };
          by_hand[i] = order == Order::fast ? (((in(0) + in(1)) + in(2)) + in(3)) + in(4)
                                            : ((in(0) + in(1)) + (in(2) + in(3))) + in(4);
        }
        for (std::size_t m = 0; m < members; ++m) {
          ASSERT_TRUE(works[m].is_done());
          ASSERT_EQ(output[m], by_hand) << to_string(order) << ' ' << two_phase_from << ' ' << one_process << ' ' << m;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
