// SPDX-License-Identifier: Apache-2.0
// Schedules written by hand, each with one mistake that prove must name, and what it says of right ones.
#include "tests/collectives/prove.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::test {
namespace {

using Schedules = std::vector<Schedule>;

ScheduleBuilder begin() {
  ScheduleBuilder builder;
  builder.round();
  return builder;
}

testing::AssertionResult is_refused(const Problem& problem, const Schedules& schedules, std::string_view why) {
  const Proof proof = prove(problem, schedules);
  if (proof.fault.find(why) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the fault is \"" << proof.fault << '"';
}

const Problem pair_reduce{.collective = Collective::reduce, .size = 2, .count = 4};
const Problem pair_gather{.collective = Collective::all_gather, .size = 2, .count = 1};

// Member 1 sends its input to member 0, which does as given.
Schedules one_sends(const Schedule& zero) { return {zero, begin().send(0, input(0, 4)).done()}; }

TEST(Simulate, AcceptsAndPricesCorrectSchedules) {
  const Proof proof =
      prove(pair_reduce,
            one_sends(begin().receive(1, scratch(0, 4)).reduce(output(0, 4), input(0, 4), scratch(0, 4)).done()));
  EXPECT_EQ(proof.fault, "");
  EXPECT_TRUE(proof.in_order);
  EXPECT_TRUE(proof.balanced);
  EXPECT_EQ(proof.cost, (Cost{1, 4, 4}));
}

TEST(Simulate, SaysWhenOperandsAreNotInOrder) {
  const Proof proof =
      prove(pair_reduce,
            one_sends(begin().receive(1, scratch(0, 4)).reduce(output(0, 4), scratch(0, 4), input(0, 4)).done()));
  EXPECT_TRUE(proof.good());
  EXPECT_FALSE(proof.in_order);
  EXPECT_FALSE(proof.balanced);
}

TEST(Simulate, SaysWhenTheOrderIsNotTheTree) {
  const Problem problem{.collective = Collective::reduce, .size = 3, .count = 1};
  const Schedule zero = begin()
                            .receive(1, scratch(0, 1))
                            .receive(2, scratch(1, 1))
                            .reduce(scratch(0, 1), scratch(0, 1), scratch(1, 1))
                            .reduce(output(0, 1), input(0, 1), scratch(0, 1))
                            .done();
  const Schedule other = begin().send(0, input(0, 1)).done();
  const Proof proof = prove(problem, Schedules{zero, other, other});
  EXPECT_TRUE(proof.good());
  EXPECT_TRUE(proof.in_order);
  EXPECT_FALSE(proof.balanced);
}

// Member 0 gets in one place, in one round, the sum of 1 and 2, and what 1 has: right if the sum comes last.
TEST(Simulate, TwoWritesOfOnePlaceInARoundAreRefusedThoughTheyMayGoWell) {
  const Problem problem{.collective = Collective::reduce, .size = 3, .count = 1};
  const Schedules all = {begin()
                             .receive(2, scratch(0, 1))
                             .receive(1, scratch(0, 1))
                             .reduce(output(0, 1), input(0, 1), scratch(0, 1))
                             .done(),
                         begin().send(2, input(0, 1)).send(0, input(0, 1)).done(),
                         begin()
                             .receive(1, scratch(0, 1))
                             .reduce(scratch(0, 1), scratch(0, 1), input(0, 1))
                             .round()
                             .send(0, scratch(0, 1))
                             .done()};
  EXPECT_TRUE(is_refused(problem, all, "received into one place"));
}

// Member 1 passes on what it gets in the same round: right if it comes before it is sent.
TEST(Simulate, AReadAndAWriteOfOnePlaceInARoundAreRefusedThoughTheyMayGoWell) {
  const Problem problem{.collective = Collective::broadcast, .size = 3, .count = 2};
  const Schedules all = {begin().send(1, input(0, 2)).copy(output(0, 2), input(0, 2)).done(),
                         begin().receive(0, output(0, 2)).send(2, output(0, 2)).done(),
                         begin().receive(1, output(0, 2)).done()};
  EXPECT_TRUE(is_refused(problem, all, "sent and received into in one round"));
}

// Parts of places race as well, and so does one memory that has two names.
TEST(Simulate, RacesOfPartsAndOfMemoryThatIsOneAreRefused) {
  const Problem problem{.size = 2, .count = 4, .in_place = true};
  const Schedule both = begin().send(1, input(0, 3)).receive(1, output(2, 2)).done();
  EXPECT_TRUE(is_refused(problem, {both, both}, "sent and received into in one round"));
  const Schedule twice = begin().receive(1, scratch(0, 3)).receive(1, scratch(2, 2)).done();
  EXPECT_TRUE(is_refused(problem, {twice, twice}, "received into one place"));
}

// It goes well where sends are buffered.
TEST(Simulate, FindsADeadlockOfTwoSenders) {
  const auto schedule = [](int mine, int other) {
    return begin()
        .send(other, input(0, 1))
        .round()
        .receive(other, output(static_cast<std::size_t>(other), 1))
        .copy(output(static_cast<std::size_t>(mine), 1), input(0, 1))
        .done();
  };
  const Schedules all = {schedule(0, 1), schedule(1, 0)};
  EXPECT_TRUE(is_refused(pair_gather, all, "waits for ever to send to member 1"));
}

TEST(Simulate, FindsAReceiveWithoutASend) {
  const Schedule waits = begin().receive(1, scratch(0, 4)).done();
  EXPECT_TRUE(is_refused(pair_reduce, {waits, Schedule{}}, "waits for ever to receive from member 1"));
}

TEST(Simulate, AMessageOfAnotherLengthIsRefused) {
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(begin().receive(1, scratch(0, 3)).done()), "expects 3 elements"));
}

TEST(Simulate, MessagesOfAPairArriveInTheOrderInWhichTheyAreWrittenDown) {
  const auto halves = [](std::size_t first, std::size_t second) {
    const Schedule zero = begin()
                              .receive(1, scratch(first, 2))
                              .receive(1, scratch(second, 2))
                              .reduce(output(0, 4), input(0, 4), scratch(0, 4))
                              .done();
    return Schedules{zero, begin().send(0, input(0, 2)).send(0, input(2, 2)).done()};
  };
  EXPECT_EQ(prove(pair_reduce, halves(0, 2)).fault, "");
  EXPECT_TRUE(is_refused(pair_reduce, halves(2, 0), "combines elements of different positions"));
}

TEST(Simulate, RefusesReadsOfUnsetElements) {
  const Schedule reduces = begin().receive(1, scratch(0, 4)).reduce(output(0, 4), input(0, 4), scratch(4, 4)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(reduces), "reduces elements that nobody has set"));
  const Schedule copies = begin().receive(1, scratch(0, 4)).copy(output(0, 4), scratch(1, 4)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(copies), "copies elements that nobody has set"));
  const Schedule sends = begin().send(0, scratch(0, 4)).done();
  EXPECT_TRUE(
      is_refused(pair_reduce, {begin().receive(1, scratch(0, 4)).done(), sends}, "sends elements that nobody has set"));
  const Schedule receives = begin().receive(1, scratch(0, 4)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(receives), "leaves elements that nobody"));
}

TEST(Simulate, AContributionCountsOnce) {
  const Schedule twice = begin()
                             .receive(1, scratch(0, 4))
                             .reduce(scratch(0, 4), input(0, 4), scratch(0, 4))
                             .reduce(output(0, 4), input(0, 4), scratch(0, 4))
                             .done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(twice), "counts a contribution twice"));
  const Schedule never = begin().receive(1, scratch(0, 4)).copy(output(0, 4), scratch(0, 4)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(never), "not exactly every contribution"));
}

TEST(Simulate, RefusesForbiddenWrites) {
  const auto refused = [](const Schedule& zero, std::string_view why) {
    return is_refused(pair_reduce, one_sends(zero), why);
  };
  EXPECT_TRUE(refused(begin().receive(1, output(1, 4)).done(), "out[1,5) lies outside"));
  EXPECT_TRUE(refused(begin().receive(1, input(0, 4)).done(), "receives into its input"));
  const Schedule writes = begin().receive(1, scratch(0, 4)).copy(input(0, 4), scratch(0, 4)).done();
  EXPECT_TRUE(refused(writes, "writes its input"));
  Schedule small = begin().receive(1, scratch(0, 4)).done();
  small.scratch = 3;
  EXPECT_TRUE(refused(small, "tmp[0,4) lies outside"));
}

TEST(Simulate, RefusesWritesBetweenBlocks) {
  const Problem problem{
      .collective = Collective::gather_v, .size = 1, .counts = {2}, .offsets = {1}, .in_place = false};
  ScheduleBuilder zero = begin();
  zero.copy(output(1, 2), input(0, 2));
  EXPECT_EQ(prove(problem, Schedules{ScheduleBuilder(zero).done()}).fault, "");
  const Schedules writes = {zero.copy(output(0, 1), output(1, 1)).done()};
  EXPECT_TRUE(is_refused(problem, writes, "writes between its blocks"));
}

TEST(Simulate, ElementsKeepTheirPlaces) {
  const Schedule crooked = begin().receive(1, scratch(0, 4)).reduce(output(0, 3), input(0, 3), scratch(1, 3)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(crooked), "combines elements of different positions"));
  const Problem moved{.collective = Collective::broadcast, .size = 1, .count = 2};
  const Schedule swapped = begin().copy(output(0, 1), input(1, 1)).copy(output(1, 1), input(0, 1)).done();
  EXPECT_TRUE(is_refused(moved, {swapped}, "an element that belongs elsewhere"));
}

TEST(Simulate, ATargetIsOneOfItsOperandsOrApart) {
  const Schedule overlaps = begin()
                                .receive(1, scratch(0, 4))
                                .copy(scratch(4, 1), scratch(3, 1))
                                .reduce(scratch(1, 4), scratch(0, 4), input(0, 4))
                                .done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(overlaps), "a target overlaps its source"));
  const Schedule uneven = begin().receive(1, scratch(0, 4)).reduce(output(0, 4), input(0, 4), scratch(0, 3)).done();
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(uneven), "slices of different lengths"));
}

// In the order 0 1 at one member, and 1 0 at the other.
TEST(Simulate, MembersOfAnAllReduceCombineInOneWay) {
  const Problem problem{.size = 2, .count = 1};
  const auto schedule = [](int other) {
    return begin()
        .send(other, input(0, 1))
        .receive(other, scratch(0, 1))
        .reduce(output(0, 1), input(0, 1), scratch(0, 1))
        .done();
  };
  const Schedules all = {schedule(1), schedule(0)};
  EXPECT_TRUE(is_refused(problem, all, "combines in another way than member 0"));
}

TEST(Simulate, RefusesABarrierThatEndsEarly) {
  const Problem problem{.collective = Collective::barrier, .size = 3};
  const auto passes = [](int to, int from) {
    return begin().send(to, input(0, 1)).receive(from, scratch(0, 1)).done();
  };
  const Schedules around = {passes(1, 2), passes(2, 0), passes(0, 1)};
  EXPECT_TRUE(is_refused(problem, around, "leaves before all have come"));
  const Schedules twice = {then(around[0], around[0]), then(around[1], around[1]), then(around[2], around[2])};
  EXPECT_EQ(prove(problem, twice).fault, "");
}

// Only who receives has heard: that a send has ended says nothing, where sends are buffered.
TEST(Simulate, ASendThatEndsIsNoSignAtABarrier) {
  const Problem problem{.collective = Collective::barrier, .size = 2};
  const Schedules all = {begin().send(1, input(0, 1)).done(), begin().receive(0, scratch(0, 1)).done()};
  EXPECT_TRUE(is_refused(problem, all, "leaves before all have come"));
}

// Member 1 tells 2 that it has come, but not that 0 has, of whom it may hear only later.
TEST(Simulate, BarriersPassOnOnlyEarlierNews) {
  const Problem problem{.collective = Collective::barrier, .size = 3};
  const auto schedules = [&](bool at_once) {
    ScheduleBuilder one = begin();
    one.receive(0, scratch(0, 1));
    if (!at_once) one.round();
    one.send(2, input(0, 1)).round().receive(2, scratch(0, 1));
    return Schedules{begin().send(1, input(0, 1)).receive(2, scratch(0, 1)).done(), one.done(),
                     begin().receive(1, scratch(0, 1)).round().send(0, input(0, 1)).send(1, input(0, 1)).done()};
  };
  EXPECT_EQ(prove(problem, schedules(false)).fault, "");
  EXPECT_TRUE(is_refused(problem, schedules(true), "leaves before all have come"));
}

// Right apart, wrong when the output is the input, which is overwritten before it is sent.
TEST(Simulate, RefusesSchedulesThatFailInPlace) {
  Problem problem{.size = 2, .count = 1};
  const Schedule zero = begin()
                            .receive(1, scratch(0, 1))
                            .reduce(output(0, 1), input(0, 1), scratch(0, 1))
                            .round()
                            .send(1, input(0, 1))
                            .done();
  const Schedule one = begin()
                           .send(0, input(0, 1))
                           .round()
                           .receive(0, scratch(0, 1))
                           .reduce(output(0, 1), scratch(0, 1), input(0, 1))
                           .done();
  EXPECT_EQ(prove(problem, Schedules{zero, one}).fault, "");
  problem.in_place = true;
  EXPECT_TRUE(is_refused(problem, {zero, one}, "counts a contribution twice"));
}

// Two members of a node do the same right step, an all_reduce of four elements, until a test changes it.
struct NodeSteps : testing::Test {
  using Steps = std::vector<IntraNodeStep>;

  static Schedule schedule(const Steps& steps) { return {.rounds = {{.node_steps = steps}}, .scratch = 8}; }
  // Whether the steps are refused if `spoil` has changed those of member 1, or of both members.
  testing::AssertionResult is_refused_for(bool both, const std::function<void(Steps&)>& spoil,
                                          std::string_view why) const {
    Steps other = right;
    spoil(other);
    return is_refused(problem, {schedule(both ? other : right), schedule(other)}, why);
  }
  testing::AssertionResult is_refused_for_one(const std::function<void(Steps&)>& spoil, std::string_view why) const {
    return is_refused_for(false, spoil, why);
  }
  testing::AssertionResult is_refused_for_both(const std::function<void(Steps&)>& spoil, std::string_view why) const {
    return is_refused_for(true, spoil, why);
  }
  static std::function<void(Steps&)> blocks(Collective collective, const Blocks& cut) {
    return [=](Steps& all) {
      all[0].collective = collective;
      all[0].blocks = cut;
    };
  }

  const Problem problem{.size = 2, .count = 4};
  const Steps right = {
      {.collective = Collective::all_reduce, .members = {0, 1}, .from = input(0, 4), .to = output(0, 4)}};
};

TEST_F(NodeSteps, OfBothMembersAreProven) {
  const Proof proof = prove(problem, Schedules{schedule(right), schedule(right)});
  EXPECT_EQ(proof.fault, "");
  EXPECT_TRUE(proof.balanced);
}

TEST_F(NodeSteps, NeedTheSameMembersAndCalls) {
  const auto seventh = [](Steps& all) { all[0].members = {0, 1, 7}; };
  EXPECT_TRUE(is_refused_for_both(seventh, "is in a node with member 7"));
  const auto alone = [](Steps& all) { all[0].members = {0}; };
  EXPECT_TRUE(is_refused_for_one(alone, "is not in its own node"));
  const auto twice = [](Steps& all) { all.push_back(all[0]); };
  EXPECT_TRUE(is_refused_for_one(twice, "has another number of steps"));
  const auto scan = [](Steps& all) { all[0].collective = Collective::scan; };
  EXPECT_TRUE(is_refused_for_one(scan, "has another step in its node"));
  EXPECT_TRUE(is_refused(problem, {schedule(right), Schedule{}}, "waits for ever for the others of its node"));
  Schedule more = schedule(right);
  more.rounds[0].times = 2;
  EXPECT_TRUE(is_refused(problem, {more, more}, "does something else in a round of its node"));
}

TEST_F(NodeSteps, ReadAndWriteOnlyTheirOwnRanges) {
  const auto into_input = [](Steps& all) { all[0].to = input(0, 4); };
  EXPECT_TRUE(is_refused_for_one(into_input, "writes its input"));
  const auto outside = [](Steps& all) { all[0].to = output(1, 4); };
  EXPECT_TRUE(is_refused_for_both(outside, "out[1,5) lies outside"));
  const auto unset = [](Steps& all) { all[0].from = scratch(0, 4); };
  EXPECT_TRUE(is_refused_for_both(unset, "gives elements that nobody has set"));
  const auto overlap = [](Steps& all) {
    all[0].from = scratch(0, 4);
    all[0].to = scratch(1, 4);
  };
  EXPECT_TRUE(is_refused_for_both(overlap, "gives elements that are written meanwhile"));
}

TEST_F(NodeSteps, CombineEachElementOnceAtItsPosition) {
  const auto shorter = [](Steps& all) { all[0].to = output(0, 3); };
  EXPECT_TRUE(is_refused_for_both(shorter, "which gives 4"));
  Steps plain = right;
  plain[0].from = input(0, 3);
  plain[0].to = output(0, 3);
  Steps shifted = plain;
  shifted[0].from = input(1, 3);
  EXPECT_TRUE(is_refused(problem, {schedule(plain), schedule(shifted)}, "combines elements of different positions"));
  const auto again = [](Steps& all) {
    all.push_back(all[0]);
    all[1].from = output(0, 4);
  };
  EXPECT_TRUE(is_refused_for_both(again, "a node counts a contribution twice"));
}

TEST_F(NodeSteps, HaveABlockForEachMember) {
  EXPECT_TRUE(is_refused_for_both(blocks(Collective::reduce_scatter_v, Blocks::even(4, 1)),
                                  "does not have a block for each member"));
  const auto cut_short = [](Steps& all) {
    blocks(Collective::reduce_scatter_v, Blocks::even(2, 2))(all);
    all[0].from = input(0, 3);
    all[0].to = output(0, 2);
  };
  EXPECT_TRUE(is_refused_for_both(cut_short, "gives too little"));
  EXPECT_TRUE(is_refused_for_both(blocks(Collective::all_gather_v, Blocks::even(6, 2)), "takes too much"));
}

TEST(Simulate, PeersAreOtherMembersAndEverybodyHasASchedule) {
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(begin().receive(2, scratch(0, 4)).done()), "a message with member 2"));
  EXPECT_TRUE(is_refused(pair_reduce, one_sends(begin().receive(0, scratch(0, 4)).done()), "a message with member 0"));
  EXPECT_TRUE(is_refused(pair_reduce, {Schedule{}}, "not one schedule for each member"));
}

}  // namespace
}  // namespace lockstep::test
