// SPDX-License-Identifier: Apache-2.0
// Proves the prover: schedules of all algorithms are damaged at random, and whatever then goes wrong when numbers are
// sent, in one of several orders, prove must have refused. What it accepts is right, in order where it says so,
// and the balanced tree where it says so.
#include <algorithm>
#include <array>
#include <iostream>

#include "tests/collectives/algorithms/proof.hpp"
#include "tests/collectives/damage.hpp"

namespace lockstep::test {
namespace {

constexpr int damages_wanted = 24000;
constexpr int damages_per_problem = 12;
constexpr std::uint64_t first_seed = 20240601;

struct Tally {
  int done = 0;
  int changed = 0;    // gave a wrong result, or none
  int refused = 0;    // by prove
  int needless = 0;   // of these: though no result was wrong, as races that went well
  int reordered = 0;  // accepted, but no longer in order, or no longer the balanced tree
  void add(const Tally& other) {
    done += other.done;
    changed += other.changed;
    refused += other.refused;
    needless += other.needless;
    reordered += other.reordered;
  }
};

std::string to_text(const Tally& tally) {
  return text(tally.done, " damages, ", tally.changed, " changed the result, ", tally.refused, " refused, ",
              tally.needless, " of them needlessly, ", tally.reordered, " accepted in another order");
}

// Members dealt out to nodes, or all alike. Where it counts, several nodes that have neighbours.
Levels random_levels(int size, bool has_neighbours, Random& random) {
  Levels levels;
  if (!has_neighbours && random.chance(3)) return levels;
  const int most = has_neighbours ? std::max(2, size / 2) : size;
  levels.nodes.resize(static_cast<std::size_t>(random.between(has_neighbours ? 2 : 1, most)));
  const bool in_turn = random.chance(2);
  const auto nodes = static_cast<int>(levels.nodes.size());
  for (int member = 0; member < size; ++member)
    levels.nodes[static_cast<std::size_t>(in_turn ? member % nodes : member * nodes / size)].push_back(member);
  return levels;
}

Problem random_problem(const Algorithm& algorithm, Random& random) {
  Problem problem{.collective = algorithm.collective, .size = random.between(2, 9)};
  const auto n = static_cast<std::size_t>(problem.size);
  problem.count = random.chance(10) ? 0 : 1 + random.below(20);
  if (is_rooted(problem.collective)) problem.root = random.between(0, problem.size - 1);
  if (algorithm.pieces && random.chance(2)) problem.segment = 1 + random.below(problem.count + 1);
  problem.in_place = algorithm.keeps.in_place && random.chance(2);
  problem.levels = random_levels(problem.size, algorithm.keeps.node, random);
  if (!is_unequal(problem.collective)) return problem;
  problem.count = 0;
  problem.counts.resize(problem.collective == Collective::all_to_all_v ? n * n : n);
  for (std::size_t& count : problem.counts) count = random.below(5);
  if (problem.collective == Collective::all_to_all_v || random.chance(2)) return problem;
  std::size_t end = 0;  // apart, the last one first
  problem.offsets.resize(n);
  for (std::size_t i = n; i-- > 0; end += problem.counts[i]) problem.offsets[i] = end += random.below(3);
  return problem;
}

bool all_fit(const Algorithm& algorithm, const Problem& problem) {
  for (int index = 0; index < problem.size; ++index) {
    if (!fits(algorithm, shape_of(problem, index))) return false;
  }
  return true;
}

// What prove accepted must be so.
void expect_right(const Problem& problem, const std::vector<Schedule>& schedules, const Proof& proof,
                  std::uint64_t seed) {
  EXPECT_EQ(find_trouble(problem, schedules, seed), "");
  EXPECT_TRUE(!proof.in_order || gives(problem, schedules, Op::affine, seed));
  EXPECT_TRUE(!proof.balanced || gives(problem, schedules, Op::tangle, seed));
}

// A round that is repeated is as good as its laps, one by one.
void expect_same_written_out(const Problem& problem, const std::vector<Schedule>& closed, const Proof& proof) {
  std::vector<Schedule> open;
  for (const Schedule& each : closed) open.push_back(written_out(each));
  const Proof other = prove(problem, open);
  EXPECT_EQ(other.fault, "");
  EXPECT_EQ(other.cost, proof.cost);
  EXPECT_EQ(other.in_order, proof.in_order);
  EXPECT_EQ(other.balanced, proof.balanced);
}

// One damage; `whole` is the problem's undamaged schedules as the algorithm built them.
Tally damage_once(const Problem& problem, const std::vector<Schedule>& whole, const AlgorithmProperties& keeps,
                  Damage damage, std::uint64_t seed) {
  Random random(seed);
  std::vector<Schedule> schedules;
  for (const Schedule& each : whole) schedules.push_back(damage == Damage::change_laps ? each : written_out(each));
  Tally tally;
  if (!do_damage(schedules, damage, random)) return tally;
  const std::string trouble = find_trouble(problem, schedules, seed);
  const Proof proof = prove(problem, schedules);
  tally.done = 1;
  tally.changed = trouble.empty() ? 0 : 1;
  tally.refused = proof.good() ? 0 : 1;
  tally.needless = trouble.empty() && !proof.good() ? 1 : 0;
  if (proof.good()) {
    EXPECT_EQ(trouble, "");
    expect_right(problem, schedules, proof, seed + 1);
    tally.reordered = (keeps.order && !proof.in_order) || (keeps.balanced && !proof.balanced) ? 1 : 0;
  }
  if (testing::Test::HasFailure()) ADD_FAILURE() << "damage " << to_string(damage) << ", seed " << seed;
  return tally;
}

// A random problem for one of the algorithms, damaged a dozen times.
void damage_one_problem(std::uint64_t seed, std::array<Tally, damage_count>& tallies) {
  Random random(seed);
  const Algorithm& algorithm = algorithms()[random.below(algorithms().size())];
  const Problem problem = random_problem(algorithm, random);
  if (!all_fit(algorithm, problem)) return;
  const std::vector<Schedule> whole = schedules_of(algorithm, problem);
  const Proof proof = prove(problem, whole);
  ASSERT_EQ(proof.fault, "") << name_of(algorithm, problem) << ", seed " << seed;
  expect_right(problem, whole, proof, seed);
  expect_same_written_out(problem, whole, proof);
  for (int i = 0; i < damages_per_problem; ++i) {
    const std::size_t kind = random.below(damage_count);
    tallies[kind].add(damage_once(problem, whole, algorithm.keeps, static_cast<Damage>(kind), random.next()));
    if (testing::Test::HasFailure()) FAIL() << name_of(algorithm, problem) << ", seed " << seed;
  }
}

TEST(Mutation, WhateverGoesWrongWasRefused) {
  std::array<Tally, damage_count> tallies;
  Tally all;
  for (std::uint64_t seed = first_seed; all.done < damages_wanted; ++seed) {
    ASSERT_LT(seed, first_seed + damages_wanted);
    damage_one_problem(seed, tallies);
    if (HasFailure()) return;
    all = {};
    for (const Tally& each : tallies) all.add(each);
  }
  for (int kind = 0; kind < damage_count; ++kind) {
    const Tally& tally = tallies[static_cast<std::size_t>(kind)];
    RecordProperty(std::string(to_string(static_cast<Damage>(kind))), to_text(tally));
    EXPECT_GE(tally.done, 100) << to_string(static_cast<Damage>(kind));
  }
  RecordProperty("all", to_text(all));
  std::cout << "mutation: " << to_text(all) << '\n';
  EXPECT_GE(all.done, 10000);
  EXPECT_GT(2 * all.changed, all.done);
  EXPECT_GE(all.refused, all.changed);
}

}  // namespace
}  // namespace lockstep::test
