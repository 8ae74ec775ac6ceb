// SPDX-License-Identifier: Apache-2.0
// Memory that members took together, found by them and by those that were split from them; and calls in it, however
// late some of them hear of it.
#include <gtest/gtest.h>

#include "collectives/node/symmetric_registry.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/node/node_case.hpp"

namespace lockstep {
namespace {

using node::BufferAddress;
using node::GenerationCounts;
using node::MemoryLineage;
using node::most_generations;
using node::SymmetricMemory;
using node::SymmetricRegistry;
using test::Case;
using test::case_of;
using test::Member;
using test::plan_of;
using test::rooms;
using test::run;

constexpr std::size_t part_bytes = 100;

// As one of the members has it mapped: the others' parts lie behind each other.
struct Mapped {
  explicit Mapped(std::size_t members) : bytes(members * part_bytes), freed(members) {}
  SymmetricMemory reachable() {
    SymmetricMemory all{.bytes = part_bytes};
    for (std::size_t m = 0; m < freed.size(); ++m) {
      all.parts.push_back(part(m));
      all.freed.push_back(&freed[m]);
    }
    return all;
  }
  std::byte* part(std::size_t member) { return bytes.data() + member * part_bytes; }
  std::vector<std::byte> bytes;
  std::vector<std::atomic<std::uint32_t>> freed;
};

TEST(NodeMemories, AreFoundByAnyPartOfThem) {
  Mapped one(3);
  Mapped two(3);
  SymmetricRegistry mine(1, 3);
  mine.own().add(one.reachable());
  mine.own().add(two.reachable());
  const BufferAddress place = mine.find(two.part(1) + 30, 70);
  EXPECT_NE(place.memory, 0U);
  EXPECT_EQ(mine.reach(2, place, mine.known()), two.part(2) + 30);
  EXPECT_EQ(mine.reach(0, mine.find(one.part(1), part_bytes), mine.known()), one.part(0));
  EXPECT_EQ(mine.find(two.part(1) + 31, 70).memory, 0U) << "more than there is";
  EXPECT_EQ(mine.find(two.part(0), 1).memory, 0U) << "another's part";
  EXPECT_FALSE(mine.is_split());
}

TEST(NodeMemories, OfAncestorsAreReachedByTheirMembersNumbers) {
  Mapped first(4);
  Mapped second(3);
  SymmetricRegistry world(2, 4);  // this is member 2 of it
  world.own().add(first.reachable());
  SymmetricRegistry part(0, 3);  // and the first of its members 2, 0, 3
  part.descend_from(world.lineage_for({2, 0, 3}));
  EXPECT_TRUE(part.is_split() && part.has_inherited());
  part.own().add(second.reachable());
  SymmetricRegistry pair(1, 2);  // and the second of that one's members 2, 0
  pair.descend_from(part.lineage_for({2, 0}));
  const BufferAddress of_world = pair.find(first.part(2) + 5, 10);
  EXPECT_EQ(pair.reach(0, of_world, pair.known()), first.part(3) + 5);
  EXPECT_EQ(pair.reach(1, of_world, pair.known()), first.part(2) + 5);
  const BufferAddress of_part = pair.find(second.part(0), 10);
  EXPECT_EQ(pair.reach(0, of_part, pair.known()), second.part(2));
  EXPECT_NE(of_part.memory, of_world.memory) << "both are the first of theirs";
  Mapped late(4);
  world.own().add(late.reachable());
  EXPECT_EQ(pair.reach(0, pair.find(late.part(2), 1), pair.known()), late.part(3));
}

TEST(NodeMemories, ThatSomebodyDoesNotKnowAreNotReached) {
  Mapped one(2);
  SymmetricRegistry mine(0, 2);
  SymmetricRegistry other(1, 2);
  mine.own().add(one.reachable());
  const BufferAddress place = mine.find(one.part(0), 1);
  EXPECT_EQ(other.find(one.part(0), 1).memory, 0U);
  ASSERT_EQ(mine.known()[0], 1U);
  ASSERT_EQ(other.known()[0], 0U);
  EXPECT_EQ(mine.reach(0, place, other.known()), nullptr);
  EXPECT_EQ(mine.reach(1, place, other.known()), nullptr);
}

TEST(NodeMemories, ThatAllHaveFreedAreForgottenAndNumbersGoOn) {
  Mapped one(2);
  Mapped two(2);
  SymmetricRegistry mine(0, 2);
  mine.own().add(one.reachable());
  const BufferAddress before = mine.find(one.part(0), 1);
  one.freed[0] = 1;
  mine.own().add(two.reachable());
  EXPECT_EQ(mine.find(one.part(0), 1).memory, before.memory) << "one member still has its part";
  one.freed[1] = 1;
  Mapped three(2);
  mine.own().add(three.reachable());
  EXPECT_EQ(mine.find(one.part(0), 1).memory, 0U);
  EXPECT_EQ(mine.own().added(), 3U);
  EXPECT_NE(mine.find(three.part(0), 1).memory, mine.find(two.part(0), 1).memory);
}

TEST(NodeMemories, OfGenerationsLongAgoAreOrdinary) {
  Mapped one(1);
  SymmetricRegistry first(0, 1);
  first.own().add(one.reachable());
  MemoryLineage lineage = first.lineage_for({0});
  for (std::size_t generation = 1; generation < most_generations + 2; ++generation) {
    SymmetricRegistry next(0, 1);
    next.descend_from(std::move(lineage));
    EXPECT_EQ(next.find(one.part(0), 1).memory != 0, generation < most_generations) << generation;
    EXPECT_EQ(next.has_inherited(), generation < most_generations);
    lineage = next.lineage_for({0});
  }
}

// All that this process has, as memory that all members took: wherever a buffer of a test lies.
SymmetricMemory everything(int members) {
  static std::atomic<std::uint32_t> freed = 0;
  SymmetricMemory all{.bytes = std::size_t{1} << 62U};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing lies before it
  all.parts.assign(static_cast<std::size_t>(members), reinterpret_cast<std::byte*>(std::uintptr_t{1}));
  all.freed.assign(static_cast<std::size_t>(members), &freed);
  return all;
}

std::vector<std::unique_ptr<node::Room>> split_rooms(int members, std::vector<SymmetricRegistry>& parents) {
  auto all = rooms(members, false);
  std::vector<int> same(static_cast<std::size_t>(members));
  for (int i = 0; i < members; ++i) same[static_cast<std::size_t>(i)] = i;
  for (int i = 0; i < members; ++i) parents.emplace_back(i, members);
  for (std::size_t m = 0; m < all.size(); ++m) all[m]->buffers().registry().descend_from(parents[m].lineage_for(same));
  return all;
}

// Of a call that goes by slots in one step, and in place in two.
std::size_t steps_of(std::vector<std::unique_ptr<node::Room>>& all, std::size_t count) {
  Case one = case_of(Collective::all_reduce, static_cast<int>(all.size()), count, 0);
  std::vector<Member> crew(all.size());
  for (std::size_t m = 0; m < all.size(); ++m) {
    Member& member = crew[m];
    member.plan = plan_of(one, static_cast<int>(m), static_cast<int>(all.size()));
    member.call = {.plan = {std::shared_ptr<void>(), &member.plan},
                   .input = one.input[m].data(),
                   .output = one.output[m].data(),
                   .kernel = find_kernel(DataType::i32, ReduceOp::sum)};
    member.work.begin(*all[m],
                      {.two_phase_from = 1U << 30U, .segment = 1U << 20U, .step = 1U << 20U, .direct_from = 64},
                      member.call, static_cast<const std::byte*>(member.call.input), 5, all[m]->buffers().queries());
  }
  for (int turn = 0; turn < 10; ++turn) {
    for (Member& member : crew) member.work.advance({});
  }
  for (std::size_t m = 0; m < all.size(); ++m) {
    EXPECT_TRUE(crew[m].work.is_done());
    EXPECT_EQ(one.output[m], one.expected[m]);
    EXPECT_EQ(crew[m].work.steps(), crew[0].work.steps());
  }
  return crew[0].work.steps();
}

TEST(NodeMemories, OfTheParentAreWorkedInOnceAllKnowOfThem) {
  std::vector<SymmetricRegistry> parents;
  auto all = split_rooms(3, parents);
  for (std::size_t knowing = 0; knowing < 3; ++knowing) {
    EXPECT_EQ(steps_of(all, 1000), 1U) << knowing << " know of it";
    parents[knowing].own().add(everything(3));
  }
  EXPECT_EQ(steps_of(all, 1000), 2U);
  EXPECT_EQ(steps_of(all, 100), 1U) << "too small to ask where it may be in vain";
  std::vector<SymmetricRegistry> rich;
  for (int i = 0; i < 3; ++i) rich.emplace_back(i, 3).own().add(everything(3));
  auto heirs = rooms(3, false);
  for (std::size_t m = 0; m < 3; ++m) heirs[m]->buffers().registry().descend_from(rich[m].lineage_for({0, 1, 2}));
  EXPECT_EQ(steps_of(heirs, 100), 2U) << "there was memory when they were split";
}

// Members hear of memory between any two calls, each when it likes.
TEST(NodeMemories, DoNotChangeResultsWhenTheyBecomeKnown) {
  constexpr std::array collectives = {Collective::all_reduce, Collective::reduce,    Collective::reduce_scatter,
                                      Collective::all_gather, Collective::broadcast, Collective::gather,
                                      Collective::scatter,    Collective::all_to_all};
  std::mt19937 random(11);
  constexpr node::Tuning tuning{.two_phase_from = 512, .segment = 4096, .step = 4096, .direct_from = 64};
  for (const int members : {2, 3, 5}) {
    for (int lap = 0; lap < 30; ++lap) {
      std::vector<SymmetricRegistry> parents;
      auto all = split_rooms(members, parents);
      for (const Collective collective : collectives) {
        SymmetricRegistry& next = parents[random() % parents.size()];
        if (next.own().added() < 2) next.own().add(everything(members));
        Case one = case_of(collective, members, 1 + random() % 3000, static_cast<int>(random() % parents.size()));
        ASSERT_NO_FATAL_FAILURE(run(all, one, tuning, random));
        for (std::size_t m = 0; m < all.size(); ++m) ASSERT_EQ(one.output[m], one.expected[m]) << to_string(collective);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
