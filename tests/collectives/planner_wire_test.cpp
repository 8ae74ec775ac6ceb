// SPDX-License-Identifier: Apache-2.0
// When the planner lets messages between nodes be narrow, and which.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collectives/planner.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep {
namespace {

using test::nodes_of;

Planner planner_on(const std::shared_ptr<const Topology>& topology, int index = 0, PlannerOptions options = {}) {
  std::vector<int> ranks(static_cast<std::size_t>(topology->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {topology, Group(std::move(ranks), index), std::move(options)};
}

Spec sum_in(WireFormat wire, std::size_t count) { return {.count = count, .wire = wire}; }

// What is given up has to be worth an eighth of the time, which it is where the link is the limit.
TEST(Planner, MessagesAreNarrowWhereTheLinkIsTheLimit) {
  constexpr std::size_t small = 64;
  constexpr std::size_t large = 4U << 20U;
  Planner planner = planner_on(nodes_of({2, 2, 2, 2}));
  EXPECT_EQ(planner.plan(sum_in(WireFormat::bf16, large))->wire, WireFormat::bf16);
  EXPECT_EQ(planner.plan(sum_in(WireFormat::f16, large))->wire, WireFormat::f16);
  EXPECT_EQ(planner.plan(sum_in(WireFormat::bf16, small))->wire, WireFormat::as_is);
  EXPECT_EQ(planner.plan(sum_in(WireFormat::as_is, large))->wire, WireFormat::as_is);
  EXPECT_EQ(planner_on(nodes_of({8})).plan(sum_in(WireFormat::bf16, large))->wire, WireFormat::as_is);
  EXPECT_NE(planner.plan(sum_in(WireFormat::bf16, large))->choice_number(),
            planner.plan(sum_in(WireFormat::f16, large))->choice_number());
  bool was_narrow = false;
  for (std::size_t count = small; count <= large; count *= 2) {
    const bool narrow = planner.plan(sum_in(WireFormat::bf16, count))->wire == WireFormat::bf16;
    EXPECT_TRUE(narrow || !was_narrow) << count;  // from one size on
    was_narrow = narrow;
    const auto all = planner.candidates(sum_in(WireFormat::bf16, count));
    const auto chosen = std::ranges::find_if(all, &AlgorithmCandidate::chosen);
    const auto plain = planner.candidates(sum_in(WireFormat::as_is, count));
    ASSERT_TRUE(chosen != all.end() && chosen->narrow == narrow);
    if (narrow) {
      EXPECT_LE(chosen->price.total_us, 0.875 * plain.front().price.total_us) << count;
    } else {
      EXPECT_EQ(chosen->name, plain.front().name) << count;
    }
  }
}

TEST(Planner, OnlyMessagesBetweenNodesAreNarrow) {
  PlannerOptions options{.algorithm = "all_reduce:hierarchical_ring"};
  const auto topology = nodes_of({2, 2, 2});
  const auto plan = planner_on(topology, 1, options).plan(sum_in(WireFormat::bf16, 3U << 20U));
  EXPECT_EQ(plan->wire, WireFormat::bf16);
  EXPECT_EQ(plan->narrow_sends, std::size_t{plan->segment} / 6);
  EXPECT_EQ(plan->narrow_receives, std::size_t{plan->segment} / 6);
  int narrow = 0;
  int wide = 0;
  for (const Round& round : plan->last.rounds) {
    for (const auto* messages : {&round.sends, &round.receives}) {
      for (const Message& each : *messages) {
        EXPECT_EQ(each.narrow, each.peer / 2 != 0) << each.peer;  // member 1 is on node 0
        ++(each.narrow ? narrow : wide);
      }
    }
  }
  EXPECT_GT(narrow, 0);
  EXPECT_GT(wide, 0);
}

TEST(Planner, NarrowsOnlyFastSumsOfFloats) {
  constexpr std::size_t large = 4U << 20U;
  Planner planner = planner_on(nodes_of({2, 2}));
  for (Spec spec : {Spec{.type = DataType::f64, .element_bytes = 8}, Spec{.op = ReduceOp::max},
                    Spec{.order = Order::reproducible}, Spec{.op = ReduceOp::premul_sum}, Spec{.op = ReduceOp::user}}) {
    spec.count = large;
    spec.wire = WireFormat::bf16;
    EXPECT_FALSE(may_be_narrow(spec));
    EXPECT_EQ(planner.plan(spec)->wire, WireFormat::as_is) << to_text(signature_of(spec));
    EXPECT_EQ(signature_of(spec).wire, WireFormat::as_is);
  }
  const Spec one = sum_in(WireFormat::bf16, large);
  const Spec other = sum_in(WireFormat::as_is, large);
  EXPECT_NE(hash(signature_of(one)), hash(signature_of(other)));
  EXPECT_NE(to_text(signature_of(one)), to_text(signature_of(other)));
}

}  // namespace
}  // namespace lockstep
