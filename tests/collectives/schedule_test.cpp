// SPDX-License-Identifier: Apache-2.0
// Schedules as values: blocks, moving slices, the builder, what is made of finished ones, and how they read.
#include "collectives/schedule.hpp"

#include <gtest/gtest.h>

#include "tests/collectives/algorithms/proof.hpp"

namespace lockstep::test {
namespace {

using Counts = std::vector<std::size_t>;

Counts sizes(const Blocks& blocks) {
  Counts all;
  for (int block = 0; block < blocks.parts(); ++block) all.push_back(blocks.count(block));
  return all;
}

Counts offsets(const Blocks& blocks) {
  Counts all;
  for (int block = 0; block < blocks.parts(); ++block) all.push_back(blocks.offset(block));
  return all;
}

TEST(Wrap, GoesAroundInBothDirections) {
  EXPECT_EQ(wrap(5, 4), 1);
  EXPECT_EQ(wrap(-1, 4), 3);
  EXPECT_EQ(wrap(-8, 4), 0);
  EXPECT_EQ(wrap(-3LL * 1'000'000'000'000, 7), wrap(4LL * 1'000'000'000'000, 7));
}

TEST(Blocks, SplitPutsTheLargerOnesFirst) {
  const Blocks blocks = Blocks::split(14, 4);
  EXPECT_EQ(sizes(blocks), (Counts{4, 4, 3, 3}));
  EXPECT_EQ(offsets(blocks), (Counts{0, 4, 8, 11}));
  EXPECT_EQ(blocks.end(3), 14U);
  EXPECT_EQ(blocks.total(), 14U);
  EXPECT_EQ(blocks.extent(), 14U);
  EXPECT_EQ(blocks.largest(), 4U);
  EXPECT_EQ(blocks.smallest(), 3U);
  EXPECT_EQ(blocks.slice(Space::scratch, 2), scratch(8, 3));
}

TEST(Blocks, SplitOfLessThanOneEach) {
  EXPECT_EQ(sizes(Blocks::split(2, 4)), (Counts{1, 1, 0, 0}));
  EXPECT_EQ(sizes(Blocks::split(0, 3)), (Counts{0, 0, 0}));
  EXPECT_EQ(Blocks::split(0, 3).largest(), 0U);
}

TEST(Blocks, EvenPackedAndPlaced) {
  EXPECT_EQ(offsets(Blocks::even(5, 3)), (Counts{0, 5, 10}));
  EXPECT_EQ(Blocks::even(5, 3).total(), 15U);
  const Blocks packed = Blocks::packed(Counts{3, 0, 2});
  EXPECT_EQ(sizes(packed), (Counts{3, 0, 2}));
  EXPECT_EQ(offsets(packed), (Counts{0, 3, 3}));
  EXPECT_EQ(packed.smallest(), 0U);
  const Blocks placed = Blocks::placed(Counts{10, 50, 0}, Counts{3, 0, 2});
  EXPECT_EQ(placed.slice(Space::input, 0), input(10, 3));
  EXPECT_EQ(placed.total(), 5U);
  EXPECT_EQ(placed.extent(), 13U);  // the empty one at 50 reaches nowhere
  EXPECT_EQ(placed.largest(), 3U);
}

TEST(Blocks, AreEqualWhenTheySayTheSame) {
  EXPECT_EQ(Blocks::packed(Counts{1, 2}), Blocks::packed(Counts{1, 2}));
  EXPECT_FALSE(Blocks::packed(Counts{1, 2}) == Blocks::packed(Counts{2, 1}));
  EXPECT_EQ(Blocks::split(6, 3), Blocks::even(2, 3));
  EXPECT_FALSE(Blocks::split(7, 3) == Blocks::even(2, 3));
}

TEST(Blocks, CountPiecesOfHugeBuffers) {
  const Blocks blocks = Blocks::pieces(5'000'000'000, 1);
  EXPECT_EQ(blocks.total(), 5'000'000'000U);
  EXPECT_LE(blocks.parts(), 1 << 20);
}

TEST(MovingSlice, GoesAroundTheBlocks) {
  const Blocks blocks = Blocks::split(10, 4);  // 3 3 2 2
  const MovingSlice down(Space::input, blocks, 1, -1);
  EXPECT_EQ(down.at(0), input(3, 3));
  EXPECT_EQ(down.at(1), input(0, 3));
  EXPECT_EQ(down.at(2), input(8, 2));
  const MovingSlice far(Space::output, blocks, -1, 2);  // a first one before the beginning is at the end
  EXPECT_EQ(far.at(0), output(8, 2));
  EXPECT_EQ(far.at(1), output(3, 3));
}

TEST(MovingSlice, InSlotsHasTheSizeOfTheBlockAndThePlaceOfTheSlot) {
  const MovingSlice moving_slice = MovingSlice::in_slots(Blocks::split(10, 4), 3, -1, 1, 2);
  EXPECT_EQ(moving_slice.at(0), scratch(3, 2));
  EXPECT_EQ(moving_slice.at(1), scratch(0, 2));
  EXPECT_EQ(moving_slice.at(2), scratch(3, 3));
}

TEST(MovingSlice, MovesToAnotherSpace) {
  MovingSlice moving_slice(Space::input, Blocks::even(2, 3), 0, 1);
  moving_slice.move_to(Space::scratch, 100);
  EXPECT_EQ(moving_slice.at(1), scratch(102, 2));
  EXPECT_EQ(moving_slice.space(), Space::scratch);
}

TEST(Builder, WritesRoundsDown) {
  ScheduleBuilder builder;
  builder.round().send(1, input(0, 4)).receive(2, scratch(6, 4)).reduce(output(0, 4), input(0, 4), scratch(6, 4));
  const Schedule schedule = builder.done();
  ASSERT_EQ(schedule.rounds.size(), 1U);
  EXPECT_EQ(schedule.rounds[0].sends.at(0), (Message{1, input(0, 4)}));
  EXPECT_EQ(schedule.rounds[0].locals.at(0).kind, LocalStepKind::reduce);
  EXPECT_EQ(schedule.scratch, 10U);
  EXPECT_EQ(schedule.laps(), 1U);
}

TEST(Builder, LeavesOutEmptyOperations) {
  ScheduleBuilder builder;
  builder.round().send(1, input(0, 0)).receive(1, scratch(50, 0)).copy(output(0, 0), input(0, 0));
  builder.round();
  builder.round(0).send(1, input(0, 4));
  builder.round(3).send(1, MovingSlice(Space::input, Blocks::split(2, 4), 3, -1));  // the blocks 3, 2 and 1
  const Schedule schedule = builder.done();
  ASSERT_EQ(schedule.rounds.size(), 1U);  // a message that is not always empty stays
  EXPECT_EQ(schedule.laps(), 3U);
  EXPECT_EQ(schedule.scratch, 0U);
}

Schedule exchange_with(int peer) {
  ScheduleBuilder builder;
  builder.round().send(peer, input(0, 2)).receive(peer, scratch(0, 2)).copy(output(0, 2), scratch(0, 2));
  return builder.done();
}

TEST(On, AGroupMovingPeersAreWrittenOut) {
  const Group group({7, 3, 5}, 7);
  ScheduleBuilder builder;
  builder.round(2)
      .send(1, 1, 3, MovingSlice(Space::input, Blocks::even(4, 3), 1, 1))
      .receive(2, -1, 3, MovingSlice(Space::output, Blocks::even(4, 3), 2, -1));
  EXPECT_EQ(to_text(on(group, builder.done())),
            "1x  ->3 in[4,8)  <-5 out[8,12)\n"
            "1x  ->5 in[8,12)  <-3 out[4,8)\n");
}

TEST(Within, ASliceAllButScratchIsFurther) {
  EXPECT_EQ(to_text(within(output(10, 2), exchange_with(1))),
            "1x  ->1 in[10,12)  <-1 tmp[0,2)  out[10,12) = tmp[0,2)\n");
}

TEST(Moved, ReadsAndWritesGoToAnotherSpace) {
  const Schedule schedule = moved(exchange_with(1), Space::input, Space::scratch, 6);
  EXPECT_EQ(to_text(schedule), "1x  ->1 tmp[6,8)  <-1 tmp[0,2)  out[0,2) = tmp[0,2)\n");
  EXPECT_EQ(schedule.scratch, 8U);
}

TEST(Moved, ACopyThatHasBecomeOneOntoItselfIsLeftOut) {
  const Schedule schedule = moved(exchange_with(1), Space::output, Space::scratch, 0);
  EXPECT_TRUE(schedule.rounds.at(0).locals.empty());
}

TEST(Staged, TheInputIsFirstCopiedToScratch) {
  const Schedule schedule = staged(exchange_with(1), 2);
  EXPECT_EQ(to_text(schedule),
            "1x  tmp[2,4) = in[0,2)\n"
            "1x  ->1 tmp[2,4)  <-1 tmp[0,2)  out[0,2) = tmp[0,2)\n");
  EXPECT_EQ(schedule.scratch, 4U);
}

// Every algorithm that is not fit for one memory is, when staged.
TEST(Staged, MakesEveryAlgorithmFitForOneMemory) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.keeps.in_place || is_unequal(algorithm.collective)) continue;
    for (int size = 1; size <= 9; ++size) {
      const Problem problem{.collective = algorithm.collective, .size = size, .count = 6, .in_place = true};
      if (!fits(algorithm, shape_of(problem, 0))) continue;
      std::vector<Schedule> schedules = schedules_of(algorithm, problem);
      for (int index = 0; index < size; ++index) {
        Schedule& mine = schedules[static_cast<std::size_t>(index)];
        mine = staged(std::move(mine), input_count(problem, index));
      }
      EXPECT_EQ(prove(problem, schedules).fault, "") << name_of(algorithm, problem);
    }
  }
}

TEST(Text, RepeatedRoundsSayWhereTheyBeginAndEnd) {
  ScheduleBuilder builder;
  const Blocks blocks = Blocks::even(4, 4);
  builder.round(3)
      .send(1, 1, 4, MovingSlice(Space::output, blocks, 0, 1))
      .receive(3, scratch(0, 4))
      .reduce(MovingSlice(Space::output, blocks, 3, -1), scratch(0, 4), MovingSlice(Space::input, blocks, 3, -1));
  EXPECT_EQ(to_text(builder.done()),
            "3x  ->1..3 out[0,4)..out[8,12)  <-3 tmp[0,4)  "
            "out[12,16)..out[4,8) = tmp[0,4) op in[12,16)..in[4,8)\n");
}

TEST(Closed, ManyMembersTakeLittleMemory) {
  const auto bytes = [](Collective collective, std::string_view name) {
    const Problem problem{.collective = collective, .size = 4096, .count = 1000};
    return find_algorithm(collective, name)->build(shape_of(problem, 17)).size_bytes();
  };
  EXPECT_LT(bytes(Collective::all_reduce, "ring"), 4096U);
  EXPECT_LT(bytes(Collective::all_gather, "ring"), 4096U);
  EXPECT_LT(bytes(Collective::all_to_all, "pairwise"), 4096U);
  EXPECT_LT(bytes(Collective::all_to_all, "bruck"), 65536U);
  EXPECT_LT(bytes(Collective::all_gather, "bruck"), 65536U);
  EXPECT_LT(bytes(Collective::all_gather, "neighbor"), 1U << 20U);
}

}  // namespace
}  // namespace lockstep::test
