// SPDX-License-Identifier: Apache-2.0
// The proof: every algorithm, for every number of members up to 17 and some beyond, for counts that divide and counts
// that do not, and every root, is right, keeps what it promises, and costs what it states. PROOF_LARGEST=n replaces 17;
// the night proves all numbers up to 64.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "collectives/algorithms/node_position.hpp"
#include "tests/collectives/algorithms/proof.hpp"

namespace lockstep::test {
namespace {

// Nodes of different sizes are not ready at the same time.
bool alike(const Levels& levels) {
  return (levels.above == nullptr || alike(*levels.above)) &&
         std::ranges::all_of(levels.nodes, [&](const auto& each) { return each.size() == levels.nodes[0].size(); });
}

// Exact where the counts divide evenly among the members, else at most what was stated.
void expect_cost(const Algorithm& algorithm, const Problem& problem, const Cost& measured) {
  const Cost stated = algorithm.cost(shape_of(problem, problem.root));
  EXPECT_LE(measured.rounds, stated.rounds);
  if (problem.collective == Collective::all_to_all_v) return;  // no member knows what the others give to each other
  EXPECT_LE(measured.sent_most, stated.sent_most);
  EXPECT_LE(measured.sent_total, stated.sent_total);
  const bool barrier = problem.collective == Collective::barrier;
  const bool even =
      problem.counts.empty() && problem.count > 0 && problem.count % static_cast<std::size_t>(problem.size) == 0;
  if (!even && !barrier) return;
  if (algorithm.keeps.node && !alike(problem.levels)) return;
  if (alike(problem.levels)) {
    EXPECT_EQ(measured.rounds, stated.rounds);
  }
  EXPECT_EQ(measured.sent_most, stated.sent_most);
  EXPECT_EQ(measured.sent_total, stated.sent_total);
}

void prove(const Algorithm& algorithm, const Problem& problem) {
  if (problem.in_place && !algorithm.keeps.in_place) return;
  for (int index = 0; index < problem.size; ++index) {
    if (!fits(algorithm, shape_of(problem, index))) return;
  }
  const std::vector<Schedule> schedules = schedules_of(algorithm, problem);
  const Proof proof = prove(problem, schedules);
  ASSERT_TRUE(proof.good()) << name_of(algorithm, problem) << ": " << proof.fault;
  EXPECT_TRUE(proof.in_order || !algorithm.keeps.order);
  EXPECT_TRUE(proof.balanced || !algorithm.keeps.balanced);
  expect_cost(algorithm, problem, proof.cost);
  if (testing::Test::HasFailure()) FAIL() << name_of(algorithm, problem);
}

std::vector<std::size_t> counts_for(int size) {
  const auto n = static_cast<std::size_t>(size);
  return {0, 1, n - 1, n, n + 1, 3 * n + 2, 1000};
}

// Nothing, everything at one member, and what grows and has holes.
std::vector<std::vector<std::size_t>> unequal_counts(Collective collective, int size) {
  const auto n = static_cast<std::size_t>(size);
  const std::size_t cells = collective == Collective::all_to_all_v ? n * n : n;
  std::vector<std::vector<std::size_t>> all(4, std::vector<std::size_t>(cells, 0));
  all[1][cells / 2] = 1000;
  for (std::size_t i = 0; i < cells; ++i) {
    all[2][i] = i % 3 == 0 ? 0 : i;
    all[3][i] = i * 7919 % 13;
  }
  return all;
}

// The last block first, and something between all of them.
std::vector<std::size_t> apart_and_backwards(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> offsets(counts.size());
  std::size_t at = 0;
  for (std::size_t i = counts.size(); i-- > 0; at += counts[i] + 1) offsets[i] = at;
  return offsets;
}

std::vector<Problem> problems(const Algorithm& algorithm, int size) {
  std::vector<Problem> all;
  Problem problem{.collective = algorithm.collective, .size = size};
  const int roots = is_rooted(algorithm.collective) ? std::min(size, 16) : 1;
  const auto add_counts = [&] {
    if (is_unequal(algorithm.collective)) {
      for (auto& counts : unequal_counts(algorithm.collective, size)) {
        problem.counts = std::move(counts);
        all.push_back(problem);
      }
      if (algorithm.collective == Collective::all_to_all_v) return;
      problem.offsets = apart_and_backwards(problem.counts);
      all.push_back(problem);
      problem.offsets.clear();
    } else if (algorithm.collective == Collective::barrier) {
      all.push_back(problem);
    } else {
      for (const std::size_t count : counts_for(size)) {
        problem.count = count;
        all.push_back(problem);
        if (algorithm.keeps.apart && count > 0) {
          problem.stride = count + 3;
          all.push_back(problem);
          problem.stride = 0;
        }
        if (!algorithm.pieces || count == 0) continue;
        for (const std::size_t segment : {std::size_t{1}, count / 3 + 1}) {
          if (count / segment > 40) continue;
          problem.segment = segment;
          all.push_back(problem);
        }
        problem.segment = 0;
      }
    }
  };
  for (problem.root = 0; problem.root < roots; ++problem.root) {
    for (const bool in_place : {false, true}) {
      problem.in_place = in_place;
      add_counts();
    }
  }
  return all;
}

class Proofs : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Proofs, HoldForEverySize) {
  const char* const wish = std::getenv("PROOF_LARGEST");
  const int largest = wish == nullptr ? 17 : std::atoi(wish);
  std::vector<int> sizes(static_cast<std::size_t>(std::max(largest, 1)));
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const int size : {24, 31, 32, 33, 48, 64}) {
    if (size > largest) sizes.push_back(size);
  }
  for (const int size : sizes) {
    for (const Problem& problem : problems(*GetParam(), size)) ASSERT_NO_FATAL_FAILURE(prove(*GetParam(), problem));
  }
}

TEST_P(Proofs, HoldForLargeSizes) {
  for (const int size : {127, 128, 255, 256}) {
    Problem problem{.collective = GetParam()->collective, .size = size, .count = 1000, .root = size / 3};
    if (is_unequal(problem.collective)) problem.counts = unequal_counts(problem.collective, size)[3];
    prove(*GetParam(), problem);
  }
}

bool is_for_nodes(const Algorithm& algorithm) {
  // What fits no members that are all alike.
  for (int size = 2; size <= 4; ++size) {
    const Problem alike{
        .collective = algorithm.collective,
        .size = size,
        .count = 1,
        .counts = std::vector<std::size_t>(
            is_unequal(algorithm.collective) ? static_cast<std::size_t>(size) * static_cast<std::size_t>(size) : 0)};
    if (fits(algorithm, shape_of(alike, 0))) return false;
  }
  return true;
}

std::vector<const Algorithm*> algorithms_that_are(bool for_nodes) {
  std::vector<const Algorithm*> all;
  for (const Algorithm& each : algorithms()) {
    if (is_for_nodes(each) == for_nodes) all.push_back(&each);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Proofs, testing::ValuesIn(algorithms_that_are(false)), [](const auto& each) {
  return text(to_string(each.param->collective), '_', each.param->name);
});

// Members by node: in turn on all nodes that have room, or one node after the other.
Levels placed(const std::vector<int>& node_sizes, bool in_turn) {
  Levels levels{std::vector<std::vector<int>>(node_sizes.size())};
  const int size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  std::size_t node = 0;
  const auto has_room = [&] { return levels.nodes[node].size() < static_cast<std::size_t>(node_sizes[node]); };
  for (int member = 0; member < size; ++member) {
    while (!has_room()) node = (node + 1) % node_sizes.size();
    levels.nodes[node].push_back(member);
    if (in_turn) node = (node + 1) % node_sizes.size();
  }
  return levels;
}

// Nodes of so many members in racks of so many nodes, and these in rows of so many racks; in turn at each level or not.
std::vector<Levels> in_racks() {
  std::vector<Levels> all;
  const auto above = [](const std::vector<int>& sizes, bool in_turn) {
    return std::make_shared<const Levels>(placed(sizes, in_turn));
  };
  for (const bool in_turn : {false, true}) {
    for (const int members : {1, 2, 3, 4}) {
      for (const auto& racks : {std::vector{2, 2}, {4, 4}, {3, 3}, {2, 2, 2}, {1, 3}, {2, 1, 4}}) {
        const int nodes = std::accumulate(racks.begin(), racks.end(), 0);
        Levels levels = placed(std::vector<int>(static_cast<std::size_t>(nodes), members), in_turn);
        levels.above = above(racks, in_turn);
        all.push_back(std::move(levels));
      }
      Levels levels = placed(std::vector<int>(8, members), false);
      Levels racks = placed({2, 2, 2, 2}, in_turn);
      racks.above = above({2, 2}, in_turn);
      levels.above = std::make_shared<const Levels>(std::move(racks));
      all.push_back(std::move(levels));
    }
    Levels levels = placed({3, 2, 1, 2}, in_turn);
    levels.above = above({2, 2}, in_turn);
    all.push_back(std::move(levels));
  }
  return all;
}

// All ways to put one to four members on each of one to four nodes.
std::vector<std::vector<int>> few_on_few_nodes() {
  constexpr int most = 4;
  std::vector<std::vector<int>> all{{}};
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (all[at].size() == most) continue;
    for (int members = 1; members <= most; ++members) {
      std::vector<int> one = all[at];
      one.push_back(members);
      all.push_back(std::move(one));
    }
  }
  std::erase_if(all, [](const std::vector<int>& each) { return each.size() < 2; });
  return all;
}

// Up to 64 members.
std::vector<std::vector<int>> drawn(int count) {
  constexpr int most_members = 64;
  std::mt19937 random(42);
  std::vector<std::vector<int>> all;
  for (int i = 0; i < count; ++i) {
    std::vector<int> one;
    for (int left = most_members; left > 0;) {
      one.push_back(std::min<int>(left, 1 + static_cast<int>(random() % 12)));
      left -= one.back();
      if (one.size() > 1 && random() % 8 == 0) break;
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<Levels> layouts() {
  std::vector<std::vector<int>> sizes{
      {1, 2}, {3, 1, 2}, {1, 1, 5}, {8, 1}, {2, 2, 3, 1}, {4, 4, 3}, {1, 7, 2, 2, 5, 1, 3}};
  for (std::size_t nodes = 2; nodes <= 8; ++nodes) {
    for (int members = 1; members <= 8; ++members) sizes.emplace_back(nodes, members);
  }
  sizes.emplace_back(16, 8);
  for (auto more : {few_on_few_nodes(), drawn(64)}) std::ranges::move(more, std::back_inserter(sizes));
  std::vector<Levels> all;
  for (const auto& each : sizes) {
    for (const bool in_turn : {false, true}) all.push_back(placed(each, in_turn));
  }
  std::ranges::reverse(all[4].nodes);  // the numbers of nodes follow no rule
  for (Levels& each : in_racks()) all.push_back(std::move(each));
  return all;
}

class HierarchicalProofs : public testing::TestWithParam<const Algorithm*> {};

TEST_P(HierarchicalProofs, HoldForEveryLayout) {
  const Algorithm& algorithm = *GetParam();
  std::size_t proven = 0;
  for (const Levels& levels : layouts()) {
    int size = 0;
    for (const auto& node : levels.nodes) size += static_cast<int>(node.size());
    for (Problem& problem : problems(algorithm, size)) {
      problem.levels = levels;
      if (problem.root % 3 != 0) continue;
      if (fits(algorithm, shape_of(problem, 0))) ++proven;
      ASSERT_NO_FATAL_FAILURE(prove(algorithm, problem));
    }
  }
  EXPECT_GT(proven, 50U);
}

INSTANTIATE_TEST_SUITE_P(All, HierarchicalProofs, testing::ValuesIn(algorithms_that_are(true)), [](const auto& each) {
  return text(to_string(each.param->collective), '_', each.param->name);
});

TEST(Closed, PiecesAreEqualButTheLast) {
  const Blocks pieces = Blocks::pieces(10, 4);
  EXPECT_EQ(pieces.parts(), 3);
  EXPECT_EQ(pieces.slice(Space::output, 1), output(4, 4));
  EXPECT_EQ(pieces.slice(Space::output, 2), output(8, 2));
  EXPECT_EQ(pieces.total(), 10U);
  EXPECT_EQ(pieces.largest(), 4U);
  EXPECT_EQ(pieces.smallest(), 2U);
  EXPECT_EQ(Blocks::pieces(8, 4), Blocks::even(4, 2));
  EXPECT_EQ(Blocks::pieces(10, 0), Blocks::even(10, 1));
  EXPECT_EQ(Blocks::pieces(0, 4).parts(), 1);
}

TEST(Closed, AChainOfManyPiecesTakesLittleMemory) {
  const Problem problem{.collective = Collective::reduce, .size = 4096, .count = 1U << 20U, .segment = 16};
  const Schedule chain = find_algorithm(Collective::reduce, "chain")->build(shape_of(problem, 17));
  EXPECT_EQ(chain.laps(), (1U << 16U) + 1);
  EXPECT_EQ(chain.scratch, 32U);
  EXPECT_LT(chain.size_bytes(), 4096U);
}

// What has few rounds has few messages, also for numbers of members that are no powers of two.
TEST(Closed, LogarithmicAlgorithmsOf4095MembersAreShort) {
  for (const auto name : {"recursive_doubling", "rabenseifner", "balanced_halving", "tree"}) {
    const Problem problem{.size = 4095, .count = 4096 * 1000 + 17};
    const Schedule schedule = find_algorithm(Collective::all_reduce, name)->build(shape_of(problem, 17));
    EXPECT_LE(schedule.laps(), 26U) << name;
    EXPECT_LT(schedule.size_bytes(), 16384U) << name;
    EXPECT_LE(schedule.scratch, problem.count) << name;
  }
}

TEST(Closed, ARingOf4096TakesLittleMemory) {
  const Problem problem{.size = 4096, .count = 4096 * 1000 + 17};
  const Schedule ring = find_algorithm(Collective::all_reduce, "ring")->build(shape_of(problem, 17));
  EXPECT_EQ(ring.laps(), 2U * 4095);
  EXPECT_LT(ring.size_bytes(), 4096U);
}

}  // namespace
}  // namespace lockstep::test
