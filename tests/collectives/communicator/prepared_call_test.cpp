// SPDX-License-Identifier: Apache-2.0
// Prepared, begun and batched calls that repeat: calls that share a plan but not their buffers, factor or function give
// their own results, and a late or missing member is named as in any other call.
#include <gtest/gtest.h>

#include <thread>

#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

constexpr WaitLimits some_seconds{std::chrono::seconds(5), std::chrono::seconds(20)};

// Repeats often enough that every form is repeated in the slot of its plan.
constexpr int times = 5;

TEST(PreparedCall, RepeatsAmongPlainCallsOfTheSamePlan) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{128}, std::size_t{2048}, std::size_t{100'000}}) {
    run_members(3, [&](Communicator& world) {
      std::vector<int> mine(count, world.rank());
      std::vector<int> result(count);
      std::vector<int> others(count, 10);
      std::vector<int> of_others(count);
      PreparedCall first = world.plan_all_reduce(mine, result, sum);
      PreparedCall second = world.plan_all_reduce(others, of_others, sum);
      for (int i = 0; i < times; ++i) {
        std::ranges::fill(mine, world.rank() + i);
        first.run();
        EXPECT_EQ(result, std::vector(count, 3 + 3 * i));
        world.all_reduce(others, of_others, sum);
        EXPECT_EQ(of_others, std::vector(count, 30));
        std::ranges::fill(of_others, 0);
        second.start().wait();
        EXPECT_EQ(of_others, std::vector(count, 30));
        std::ranges::fill(result, 0);
        world.all_reduce_async(mine, result, sum).wait();
        EXPECT_EQ(result, std::vector(count, 3 + 3 * i));
      }
    });
  }
}

TEST(PreparedCall, KeepsItsOwnFactorAndFunction) {
  run_members(2, [](Communicator& world) {
    std::vector<double> ones(4, 1.0);
    std::vector<double> result(4);
    PreparedCall halves = world.plan_all_reduce(ones, result, premul_sum(0.5));
    PreparedCall doubles = world.plan_all_reduce(ones, result, premul_sum(2.0));
    const auto scaled = [](double factor) {
      return commutative([factor](double left, double right) { return factor * (left + right); }, "scaled");
    };
    PreparedCall tens = world.plan_all_reduce(ones, result, scaled(10));
    PreparedCall hundreds = world.plan_all_reduce(ones, result, scaled(100));
    for (int i = 0; i < times; ++i) {
      halves.run();
      EXPECT_EQ(result, std::vector(4, 1.0));
      doubles.run();
      EXPECT_EQ(result, std::vector(4, 4.0));
      tens.run();
      EXPECT_EQ(result, std::vector(4, 20.0));
      hundreds.run();
      EXPECT_EQ(result, std::vector(4, 200.0));
    }
  });
}

TEST(PreparedCall, OfPackedTensorsLeavesPlainCallsOfItsPlanAlone) {
  run_members(2, [](Communicator& world) {
    std::vector<float> first(3, 1.0F);
    std::vector<float> second(5, 2.0F);
    std::vector<float> whole(8, 4.0F);
    std::vector<float> sums(8);
    for (int i = 0; i < times; ++i) {
      std::ranges::fill(first, 1.0F);
      std::ranges::fill(second, 2.0F);
      Batch batch(world);
      batch.all_reduce(first, sum).all_reduce(second, sum).run();
      EXPECT_EQ(first, std::vector(3, 2.0F));
      EXPECT_EQ(second, std::vector(5, 4.0F));
      batch.run();
      EXPECT_EQ(second, std::vector(5, 8.0F));
      world.all_reduce(whole, sums, sum);
      EXPECT_EQ(sums, std::vector(8, 8.0F));
    }
  });
}

// A begun call that is not awaited yet keeps its slot, and the others take slots of their own.
TEST(PreparedCall, BegunTwiceHasTwoResults) {
  run_members(2, [](Communicator& world) {
    std::vector<int> mine(2, world.rank() + 1);
    std::vector<std::vector<int>> results(4, std::vector<int>(2));
    for (int i = 0; i < times; ++i) {
      std::vector<Request> requests;
      for (auto& each : results) {
        std::ranges::fill(each, 0);
        requests.push_back(world.all_reduce_async(mine, each, sum));
      }
      world.all_reduce(mine, results[0], sum);
      for (std::size_t k = results.size(); k-- > 0;) requests[k].wait();
      for (const auto& each : results) EXPECT_EQ(each, std::vector(2, 3));
    }
  });
}

// Runs a repeated call for which rank 1 comes too late, and returns the error of rank 0.
std::string error_of_late(const std::function<void(Communicator&, PreparedCall&, std::vector<float>&)>& call,
                          CommunicatorOptions options) {
  std::string said;
  run_members(
      2,
      [&](Communicator& world) {
        std::vector<float> mine(2);
        PreparedCall prepared = world.plan_all_reduce(mine, sum);
        for (int i = 0; i < times; ++i) call(world, prepared, mine);
        world.set_timeout(std::chrono::milliseconds(100));
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        try {
          call(world, prepared, mine);
          world.barrier();
        } catch (const Error& error) {
          if (world.rank() == 0) said = error.what();
        }
      },
      std::move(options), some_seconds, Log(LogLevel::off));
  return said;
}

TEST(PreparedCall, TakesTheTimeoutOfTheDay) {
  for (const bool in_memory : {true, false}) {
    for (const bool begun : {true, false}) {
      const std::string said = error_of_late(
          [&](Communicator& world, PreparedCall& prepared, std::vector<float>& mine) {
            if (begun)
              world.all_reduce_async(mine, sum).wait();
            else
              prepared.run();
          },
          {.node_memory = in_memory});
      EXPECT_NE(said.find("the program has set this call's limit"), std::string::npos) << said;
      EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
    }
  }
}

TEST(PreparedCall, LearnsOfAFailureOnAnotherRank) {
  for (const bool begun : {true, false}) {
    std::array<std::string, 2> said;
    run_members(
        2,
        [&](Communicator& world) {
          std::vector<int> mine(2);
          PreparedCall prepared = world.plan_all_reduce(mine, sum);
          const auto once = [&] { begun ? prepared.start().wait() : prepared.run(); };
          for (int i = 0; i < times; ++i) once();
          try {
            if (world.rank() == 1) world.all_reduce(mine, std::span(mine).first(1), sum);
            once();
            world.barrier();
          } catch (const Error& error) {
            said[static_cast<std::size_t>(world.rank())] = error.what();
          }
          EXPECT_THROW(once(), Error) << "a failed communicator refuses all later calls";
        },
        {}, some_seconds, Log(LogLevel::off));
    for (const std::string& each : said) EXPECT_NE(each.find("elements"), std::string::npos) << each;
  }
}

TEST(PreparedCall, IsRefusedAfterItsCommunicatorHasEnded) {
  run_members(2, [](Communicator& world) {
    std::vector<int> mine(2);
    std::optional part(world.duplicate());
    PreparedCall prepared = part->plan_all_reduce(mine, sum);
    for (int i = 0; i < times; ++i) prepared.run();
    part.reset();
    EXPECT_THROW(prepared.run(), Error);
    EXPECT_THROW(prepared.start(), Error);
  });
}

}  // namespace
}  // namespace lockstep::test
