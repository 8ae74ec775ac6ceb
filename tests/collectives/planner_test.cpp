// SPDX-License-Identifier: Apache-2.0
// The planner: members that ask alike decide alike, every case has a plan, every plan is proven, and what people say
// goes before what is guessed.
#include "collectives/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/collectives/algorithms/proof.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::test {
namespace {

// Members on each node, each with a core of its own, in the order of the nodes.
std::shared_ptr<const Topology> cluster(const std::vector<int>& members_on_nodes) {
  std::vector<MadeNode> nodes;
  for (const int members : members_on_nodes) {
    MadeNode node;
    for (int i = 0; i < members; ++i) node.members.emplace_back(i, i);
    nodes.push_back(node);
  }
  return std::make_shared<Topology>(made_of({shape({.cores = 64})}, nodes));
}

Group everybody(const Topology& topology, int index) {
  std::vector<int> ranks(static_cast<std::size_t>(topology.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {std::move(ranks), index};
}

Planner planner_of(const std::shared_ptr<const Topology>& topology, int index = 0, PlannerOptions options = {}) {
  return {topology, everybody(*topology, index), std::move(options)};
}

// As member `index` asks for the problem.
Spec spec_of(const Problem& problem, int index, Spec spec = {}) {
  const Shape shape = shape_of(problem, index);
  spec.collective = problem.collective;
  spec.count = problem.count;
  spec.root = problem.root;
  spec.in_place = problem.in_place;
  spec.input_blocks = shape.input_blocks;
  spec.output_blocks = shape.output_blocks;
  return spec;
}

std::vector<Collective> planned_collectives() {
  std::vector<Collective> all;
  for (int i = 0; i < collective_count; ++i) {
    if (static_cast<Collective>(i) != Collective::sendrecv) all.push_back(static_cast<Collective>(i));
  }
  return all;
}

Problem problem_of(Collective collective, int size, std::size_t count) {
  Problem problem{.collective = collective, .size = size, .count = count, .root = size / 2};
  if (!is_unequal(collective)) return problem;
  const auto n = static_cast<std::size_t>(size);
  problem.counts.resize(collective == Collective::all_to_all_v ? n * n : n);
  for (std::size_t i = 0; i < problem.counts.size(); ++i) problem.counts[i] = (i * 7919 + count) % 13;
  return problem;
}

// Proves segment by segment what all members plan, and that the segments are the whole.
void prove(const std::vector<std::shared_ptr<const Plan>>& plans, const Problem& problem, const Spec& like) {
  const Plan& first = *plans.front();
  const auto segments = static_cast<std::size_t>(first.segments);
  if (segments > 1) {
    ASSERT_GT(problem.count, (segments - 1) * first.segment);
    ASSERT_LE(problem.count, segments * first.segment);
  }
  for (const int number : {0, first.segments - 1}) {
    Problem segment = problem;
    if (segments > 1) segment.count = number == 0 ? first.segment : problem.count - (segments - 1) * first.segment;
    if (cuts_input(problem.collective) || cuts_output(problem.collective)) segment.stride = problem.count;
    std::vector<Schedule> schedules;
    for (const auto& plan : plans) {
      ASSERT_EQ(plan->choice_number(), first.choice_number());
      ASSERT_EQ(plan->segments, first.segments);
      ASSERT_EQ(plan->segment, first.segment);
      ASSERT_EQ(plan->depth, first.depth);
      schedules.push_back(plan->schedule_of(number));
      ASSERT_EQ(plan->input_count, input_count(problem, plan->index));
      ASSERT_EQ(plan->output_count, output_count(problem, plan->index));
    }
    const Proof proof = prove(segment, schedules);
    ASSERT_TRUE(proof.good()) << first.algorithm << ": " << proof.fault;
    if (!reduces(problem.collective)) continue;
    ASSERT_TRUE(proof.balanced || like.order == Order::fast) << first.algorithm;
    ASSERT_TRUE(proof.in_order || like.commutes) << first.algorithm;
  }
}

void plan_and_prove(const std::shared_ptr<const Topology>& topology, const Problem& problem, const Spec& like,
                    const PlannerOptions& options = {}) {
  std::vector<std::shared_ptr<const Plan>> plans;
  for (int index = 0; index < problem.size; ++index) {
    Planner planner = planner_of(topology, index, options);
    plans.push_back(planner.plan(spec_of(problem, index, like)));
  }
  prove(plans, problem, like);
  if (testing::Test::HasFailure())
    FAIL() << to_text(signature_of(plans.front()->spec)) << ", " << problem.size << " members on "
           << topology->node_count() << " nodes, in place " << problem.in_place;
}

std::vector<Spec> kinds_of(Collective collective) {
  if (!reduces(collective)) return {Spec{}};
  return {Spec{}, Spec{.order = Order::reproducible}, Spec{.op = ReduceOp::user, .commutes = false},
          Spec{.op = ReduceOp::user, .order = Order::reproducible, .commutes = false}};
}

class EveryCase : public testing::TestWithParam<Collective> {};

TEST_P(EveryCase, HasAPlanThatIsRight) {
  const std::vector<std::vector<int>> clusters = {{1}, {2}, {5}, {8}, {13}, {1, 1}, {2, 2}, {4, 4, 4}, {3, 1, 2}};
  for (const auto& members : clusters) {
    const auto topology = cluster(members);
    for (const Spec& like : kinds_of(GetParam())) {
      for (const std::size_t count : {0U, 1U, 7U, 1000U, 100000U}) {
        if (is_unequal(GetParam()) && count > 7) continue;
        Problem problem = problem_of(GetParam(), topology->size(), count);
        for (const bool in_place : {false, true}) {
          problem.in_place = in_place;
          ASSERT_NO_FATAL_FAILURE(plan_and_prove(topology, problem, like));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCase, testing::ValuesIn(planned_collectives()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

// Members' own affairs differ: where they work in place, where their blocks lie, counts that others cannot know.
TEST(Planner, EqualQuestionsHaveEqualAnswers) {
  std::mt19937 random(4711);
  const auto roll = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 150; ++round) {
    std::vector<int> members(static_cast<std::size_t>(roll(1, 5)));
    for (int& each : members) each = roll(1, 9);
    const auto topology = cluster(members);
    std::vector<int> ranks = everybody(*topology, 0).ranks();
    std::ranges::shuffle(ranks, random);
    ranks.resize(static_cast<std::size_t>(roll(1, static_cast<int>(ranks.size()))));
    const auto collectives = planned_collectives();
    Problem problem =
        problem_of(collectives[static_cast<std::size_t>(roll(0, static_cast<int>(collectives.size()) - 1))],
                   static_cast<int>(ranks.size()), static_cast<std::size_t>(roll(0, 1 << roll(0, 22))));
    const auto kinds = kinds_of(problem.collective);
    const Spec like = kinds[static_cast<std::size_t>(roll(0, static_cast<int>(kinds.size()) - 1))];
    std::optional<std::uint64_t> choice;
    for (int index = 0; index < problem.size; ++index) {
      problem.in_place = roll(0, 1) == 1;
      Spec spec = spec_of(problem, index, like);
      if (problem.collective == Collective::all_gather_v) {
        std::vector<std::size_t> offsets(problem.counts.size());
        for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = 100 * i + static_cast<std::size_t>(roll(0, 9));
        spec.output_blocks = Blocks::placed(offsets, problem.counts);
      }
      Planner planner(topology, Group(ranks, ranks[static_cast<std::size_t>(index)]));
      const auto plan = planner.plan(spec);
      ASSERT_EQ(choice.value_or(plan->choice_number()), plan->choice_number())
          << to_text(signature_of(spec)) << ", index " << index;
      choice = plan->choice_number();
    }
  }
}

TEST(Planner, IgnoresCountsThatOthersDoNotKnow) {
  const PlannerOptions options{.table =
                                   "all_to_all_v * * 0-1K pairwise 0 for few\n"
                                   "all_to_all_v * * 1K+ flat 0 for many\n"};
  Planner planner = planner_of(cluster({4}), 0, options);
  const auto choice = [&](std::size_t count) {
    const Blocks blocks = Blocks::packed(std::vector<std::size_t>(4, count));
    return planner
        .plan({.collective = Collective::all_to_all_v, .count = count, .input_blocks = blocks, .output_blocks = blocks})
        ->choice_number();
  };
  EXPECT_EQ(choice(0), choice(1));
  EXPECT_EQ(choice(0), choice(10'000'000));
}

// A member with short blocks posts all of them at once, beside others that send long ones in turns.
TEST(Planner, ShortBlocksOfAnAllToAllArePostedAtOnce) {
  const auto topology = cluster({2, 2, 2, 2});
  Problem problem = problem_of(Collective::all_to_all_v, topology->size(), 5);
  constexpr std::size_t large = 1U << 20U;
  problem.counts[2 * 8 + 5] = large;
  problem.counts[3 * 8 + 3] = large;  // stays where it is
  std::vector<int> rounds;
  for (int index = 0; index < problem.size; ++index) {
    const auto plan = planner_of(topology, index).plan(spec_of(problem, index));
    EXPECT_EQ(plan->algorithm, index == 2 || index == 5 ? "pairwise" : "flat");
    EXPECT_EQ(plan->agreed_algorithm(), "flat");
    rounds.push_back(0);
    for (const Round& round : plan->last.rounds) rounds.back() += round.sends.empty() ? 0 : round.times;
  }
  EXPECT_EQ(rounds, (std::vector<int>{1, 1, 7, 1, 1, 7, 1, 1}));
  plan_and_prove(topology, problem, {});
}

TEST(Planner, ExactSumsMayUseAnyOrder) {
  Planner planner = planner_of(cluster({8}));
  const Spec fast{.type = DataType::i32, .count = 1 << 22};
  const auto same = [&](Spec spec) {
    Spec reproducible = spec;
    reproducible.order = Order::reproducible;
    return planner.plan(spec)->algorithm == planner.plan(reproducible)->algorithm;
  };
  EXPECT_TRUE(same(fast));
  for (const auto& [type, op] :
       {std::pair(DataType::u8, ReduceOp::prod), std::pair(DataType::f32, ReduceOp::max),
        std::pair(DataType::located_f64, ReduceOp::min), std::pair(DataType::boolean, ReduceOp::logical_xor)})
    EXPECT_TRUE(same({.type = type, .op = op, .element_bytes = size_of(type), .count = 1 << 22}));
  const auto refused = [&](const Spec& spec) {
    const auto all = planner.candidates(spec);
    const auto ring = std::ranges::find(all, "ring", &AlgorithmCandidate::name);
    return ring != all.end() && !ring->why_not.empty();
  };
  EXPECT_TRUE(refused({.order = Order::reproducible, .count = 100}));
  EXPECT_TRUE(refused({.op = ReduceOp::avg, .order = Order::reproducible, .count = 100}));
  EXPECT_TRUE(refused({.type = DataType::i32, .op = ReduceOp::premul_sum, .order = Order::reproducible, .count = 100}));
  EXPECT_TRUE(refused({.op = ReduceOp::user, .count = 100, .commutes = false}));
  EXPECT_FALSE(refused({.op = ReduceOp::user, .count = 100}));
}

TEST(Planner, AForcedNameIsTakenOrRefusedWithTheReason) {
  const auto topology = cluster({8});
  Planner planner = planner_of(topology, 0, {.algorithm = "all_reduce:ring"});
  EXPECT_EQ(planner.plan({.count = 1})->algorithm, "ring");
  EXPECT_EQ(planner.plan({.count = 1})->why, "forced by LOCKSTEP_ALGORITHM");
  const std::string order =
      refusal([&] { (void)planner.plan({.order = Order::reproducible, .count = 1}); }, Code::bad_setting);
  EXPECT_NE(order.find("all_reduce:ring, which does not combine in the balanced tree"), std::string::npos) << order;
  EXPECT_NE(order.find("take one of "), std::string::npos) << order;
  Planner odd = planner_of(cluster({3}), 0, {.algorithm = "all_gather:neighbor"});
  const Spec spec = spec_of(problem_of(Collective::all_gather, 3, 5), 0);
  const std::string size = refusal([&] { (void)odd.plan(spec); }, Code::bad_setting);
  EXPECT_NE(size.find("does not fit 3 members"), std::string::npos) << size;
  refusal([&] { (void)planner_of(topology, 0, {.algorithm = "all_reduce:rung"}); }, Code::bad_setting);
}

TEST(Planner, AMeasuredRowGoesBeforeTheModelWhereItFits) {
  const PlannerOptions options{.table =
                                   "all_reduce 8 1 4-64 ring 0 measured here\n"
                                   "all_reduce 8 2+ * ring 0 elsewhere\n",
                               .table_name = "some.table"};
  Planner planner = planner_of(cluster({8}), 0, options);
  EXPECT_EQ(planner.plan({.count = 16})->why, "line 1 of some.table: measured here");
  EXPECT_EQ(planner.plan({.count = 16})->algorithm, "ring");
  EXPECT_NE(planner.plan({.count = 17})->algorithm, "ring") << "68 bytes are beyond the row";
  EXPECT_NE(planner.plan({.order = Order::reproducible, .count = 16})->algorithm, "ring") << "a row breaks no promise";
  EXPECT_NE(planner_of(cluster({7}), 0, options).plan({.count = 16})->algorithm, "ring");
  EXPECT_EQ(planner_of(cluster({4, 4}), 0, options).plan({.count = 17})->algorithm, "ring");
  PlannerOptions both = options;
  both.algorithm = "all_reduce:flat";
  EXPECT_EQ(planner_of(cluster({8}), 0, both).plan({.count = 16})->algorithm, "flat") << "a forced name goes first";
}

// By messages members meet in their packages first, then in nodes; in memory that a node shares they meet at once.
TEST(Planner, TakesPackagesAsALevelOfMessages) {
  const auto topology = [] {
    MadeNode node;
    for (int i = 0; i < 8; ++i) node.members.emplace_back(i, i);
    return std::make_shared<const Topology>(made_of({shape({.packages = 2, .cores = 4})}, {node, node}));
  }();
  const auto peers = [&](std::string_view name, PlannerOptions options) {
    options.algorithm = text("all_reduce:", name);
    Planner planner = planner_of(topology, 5, std::move(options));
    const auto plan = planner.plan({.collective = Collective::all_reduce, .count = 1600});
    std::vector<int> all;
    for (const Round& round : plan->last.rounds) {
      for (const Message& sent : round.sends) {
        if (std::ranges::find(all, sent.peer) == all.end()) all.push_back(sent.peer);
      }
    }
    return all;
  };
  EXPECT_EQ(peers("hierarchical_ring", {}), (std::vector{6, 1, 13}));
  EXPECT_EQ(peers("node_ring", {.split_node_element = 64}), (std::vector{13}));
  std::vector<Schedule> schedules;
  for (int index = 0; index < topology->size(); ++index) {
    Planner planner = planner_of(topology, index, {.algorithm = "all_reduce:hierarchical_ring"});
    schedules.push_back(planner.plan({.collective = Collective::all_reduce, .count = 1600})->last);
  }
  const Problem problem{.collective = Collective::all_reduce, .size = topology->size(), .count = 1600};
  const Proof proof = prove(problem, schedules);
  EXPECT_TRUE(proof.good()) << proof.fault;
}

// Dealt out to packages in turn, members of a node follow each other, and those of a package do not.
TEST(Planner, GoesByNodesWherePackagesDoNotFit) {
  MadeNode node;
  for (int i = 0; i < 4; ++i) {
    const int core = 4 * (i % 2) + i / 2;
    node.members.emplace_back(core, core);
  }
  const auto topology = std::make_shared<const Topology>(made_of({shape({.packages = 2, .cores = 4})}, {node, node}));
  Planner planner = planner_of(topology, 0, {.algorithm = "all_reduce:hierarchical_balanced"});
  ASSERT_NE(planner.facts().packages, nullptr);
  EXPECT_EQ(planner.facts().packages->nodes.front(), (std::vector{0, 2}));
  EXPECT_EQ(planner.plan({.collective = Collective::all_reduce, .count = 800})->algorithm, "hierarchical_balanced");
}

TEST(Planner, SegmentsCoverTheBufferAndEachIsRight) {
  for (const std::size_t count : {1U, 63U, 64U, 65U, 1000U, 4096U, 5000U}) {
    for (const bool in_place : {false, true}) {
      const PlannerOptions options{.table = "all_reduce * * * ring 1K here\nscan * * * linear 2K here"};
      Problem problem = problem_of(Collective::all_reduce, 5, count);
      problem.in_place = in_place;
      ASSERT_NO_FATAL_FAILURE(plan_and_prove(cluster({3, 2}), problem, {}, options));
      problem.collective = Collective::scan;
      ASSERT_NO_FATAL_FAILURE(plan_and_prove(cluster({3, 2}), problem, {}, options));
    }
  }
  Planner planner = planner_of(cluster({5}), 0, {.table = "all_reduce * * * ring 1K here"});
  const auto plan = planner.plan({.count = 1000});
  EXPECT_EQ(plan->segments, 4);
  EXPECT_EQ(plan->segment, 256U);
  EXPECT_EQ(plan->depth, 2);
  EXPECT_NE(plan->choice_number(), planner.plan({.count = 100})->choice_number());
}

TEST(Planner, StagesThatUseDifferentLinksOverlapBySegments) {
  const PlannerOptions options{.algorithm = "all_reduce:hierarchical_ring"};
  const auto topology = cluster({2, 2});
  Planner planner = planner_of(topology, 0, options);
  EXPECT_EQ(planner.plan({.count = 1000})->segments, 1);
  const auto plan = planner.plan({.count = (std::size_t{1} << 21U) + 5});
  EXPECT_EQ(plan->segments, 8);
  EXPECT_EQ(plan->depth, 3);
  ASSERT_NO_FATAL_FAILURE(
      plan_and_prove(topology, problem_of(Collective::all_reduce, 4, (std::size_t{1} << 21U) + 5), {}, options));
}

// Of blocks a segment has a part of each.
TEST(Planner, BlocksAreCutAndEachSegmentIsRight) {
  const auto topology = cluster({3, 3, 3});
  for (const std::string_view row : {"all_gather * * * node_rails 4000 t", "all_gather * * * hierarchical 4000 t",
                                     "reduce_scatter * * * node_rails 4000 t", "all_to_all * * * pairwise 4000 t"}) {
    const PlannerOptions options{.table = std::string(row), .split_node_element = 64};
    const auto collective = parse_collective(row.substr(0, row.find(' ')));
    ASSERT_TRUE(collective) << row;
    Problem problem = problem_of(*collective, 9, 1000);
    for (const bool in_place : {false, true}) {
      problem.in_place = in_place;
      const auto plan = planner_of(topology, 0, options).plan(spec_of(problem, 0));
      EXPECT_EQ(plan->segments, 8) << row;  // in place or not: members decide alike
      EXPECT_EQ(plan->segment, 128U) << row;
      ASSERT_NO_FATAL_FAILURE(plan_and_prove(topology, problem, {}, options)) << row;
    }
  }
  const std::string why =
      refusal([&] { planner_of(topology, 0, {.table = "all_gather * * * bruck 4000 t"}); }, Code::bad_setting);
  EXPECT_NE(why.find("is not done in segments"), std::string::npos) << why;
}

// What members compare beside the call changes nothing of how it is done.
TEST(Planner, FingerprintsDoNotChangeThePlan) {
  Planner planner = planner_of(cluster({3, 2}), 0, {.table = "all_reduce * * * ring 1K here", .most_plans = 4});
  const auto plain = planner.plan({.count = 1000});
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const auto plan = planner.plan({.count = 1000, .fingerprints = {.variable = i}});
    EXPECT_EQ(plan->choice_number(), plain->choice_number());
    EXPECT_EQ(plan->schedule, plain->schedule);
    EXPECT_EQ(plan->spec.fingerprints.variable, i);
    EXPECT_EQ(planner.plan({.count = 1000, .fingerprints = {.variable = i}}), plan);
    EXPECT_LE(planner.kept(), 4U);
  }
}

TEST(Planner, SegmentsCallsThatNeedMuchScratch) {
  Planner planner = planner_of(cluster({8}), 0, {.algorithm = "all_reduce:flat"});
  const auto plan = planner.plan({.count = std::size_t{1} << 28U});
  EXPECT_GT(plan->segments, 1);
  EXPECT_LE(plan->schedule.scratch * 4, std::size_t{80} << 20U) << "of one segment";
  EXPECT_EQ(planner.plan({.count = 1 << 20})->segments, 1);
}

TEST(Planner, KeepsPlansByTheirCounts) {
  Planner planner = planner_of(cluster({4}), 0, {.most_plans = 3});
  const auto spec = [](std::size_t last) {
    const std::vector<std::size_t> counts{1, 2, 3, last};
    return Spec{.collective = Collective::all_gather_v, .output_blocks = Blocks::packed(counts)};
  };
  const auto plan = planner.plan(spec(4));
  EXPECT_EQ(planner.plan(spec(4)), plan) << "another table with the same counts";
  EXPECT_NE(planner.plan(spec(5)), plan);
  planner.plan(spec(6));
  EXPECT_EQ(planner.kept(), 3U);
  planner.plan(spec(7));
  EXPECT_EQ(planner.kept(), 3U);
  EXPECT_NE(planner.plan(spec(4)), plan) << "the oldest has gone";
  EXPECT_EQ(planner.plan(spec(4))->schedule_of(0), plan->schedule_of(0));
  for (std::size_t i = 0; i < 100; ++i) planner.plan(spec(i));
  EXPECT_EQ(planner.kept(), 3U);
}

TEST(Planner, FindsKeptPlansWithoutAllocating) {
  Planner planner = planner_of(cluster({4}));
  const std::vector<std::size_t> counts{1, 2, 3, 4};
  const Spec spec{.collective = Collective::all_gather_v, .output_blocks = Blocks::packed(counts)};
  const auto plan = planner.plan(spec);
  const std::size_t before = allocations_made();
  const auto again = planner.plan(spec);
  EXPECT_EQ(allocations_made(), before);
  EXPECT_EQ(again, plan);
}

TEST(Planner, RefusesImpossibleCalls) {
  Planner planner = planner_of(cluster({4}));
  const auto says = [&](const Spec& spec, std::string_view part) {
    const std::string message = refusal([&] { (void)planner.plan(spec); }, Code::usage);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says({.collective = Collective::broadcast, .root = 4}, "the root 4 is not among the 4 members");
  says({.collective = Collective::gather, .root = -1}, "the root -1");
  says({.collective = Collective::all_gather_v}, "counts for 1 of 4 members");
  says({.element_bytes = 0, .count = 3}, "elements of no bytes");
  says({.collective = Collective::sendrecv}, "need no plan");
  Planner stranger(cluster({4}), Group({0, 1}, 3));
  refusal([&] { (void)stranger.plan({.count = 1}); }, Code::usage);
}

TEST(Planner, ListsItsCandidates) {
  Planner planner = planner_of(cluster({8}));
  const auto all = planner.candidates({.op = ReduceOp::user, .count = 1 << 20, .commutes = false});
  ASSERT_GE(all.size(), 2U);
  EXPECT_TRUE(all.front().chosen);
  EXPECT_EQ(std::ranges::count(all, true, &AlgorithmCandidate::chosen), 1);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LE(all[i - 1].why_not.empty() ? 0 : 1, all[i].why_not.empty() ? 0 : 1);
    if (!all[i].why_not.empty()) continue;
    EXPECT_LE(all[i - 1].price.total_us, all[i].price.total_us);
  }
  const auto ring = planner.candidates({.count = 800});
  const auto found = std::ranges::find(ring, "ring", &AlgorithmCandidate::name);
  ASSERT_NE(found, ring.end());
  EXPECT_EQ(found->rounds, 14U);
  EXPECT_EQ(found->sent_bytes, 14U * 100 * 4);
  EXPECT_TRUE(planner_of(cluster({1})).candidates({.count = 1}).empty());
}

}  // namespace
}  // namespace lockstep::test
