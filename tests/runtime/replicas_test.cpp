// SPDX-License-Identifier: Apache-2.0
// Replicas that do not do the same: found at once, told with names and places, and over with the run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/cross_device_ops.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using test::quick;
using test::refusal;

// Refused within a moment, with these words; and the strategy can be used again.
void expect_refused(MirroredStrategy& two, const std::function<void(ReplicaContext&)>& function,
                    std::string_view words) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    two.run(function);
    ADD_FAILURE() << "nothing was thrown; expected: " << words;
  } catch (const ReplicaError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
      << words << ": not when the time was over";
  EXPECT_EQ(two.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], 2) << "used again";
}

TEST(Replicas, DifferentCollectivesAreAnErrorAtOnce) {
  MirroredStrategy two(2, quick());
  const auto one_more = [](int which) {
    return [which](ReplicaContext& context) {
      static_cast<void>(context.all_reduce(2, sum));
      if (context.local_id() == which) static_cast<void>(context.all_reduce(1, sum));
    };
  };
  expect_refused(two, one_more(0), "replica 0 is in collective 2 of this run, at ");
  expect_refused(two, one_more(1), "replica 0 has returned after 1, the last at ");
  expect_refused(
      two,
      [](ReplicaContext& context) {
        std::vector<float> data(context.local_id() == 0 ? 10 : 11);
        context.all_reduce(data, sum);
      },
      "all_reduce of 1");
  // Messages are between two, and not counted.
  two.run([](ReplicaContext& context) {
    int one = 7;
    if (context.local_id() == 0) context.communicator().send(std::span<const int>(&one, 1), 1);
    if (context.local_id() == 1) context.communicator().recv(std::span<int>(&one, 1), 0);
    EXPECT_EQ(one, 7);
  });
}

TEST(Replicas, MeetAllOrNoneAtOnePlaceWithTheSameTypes) {
  MirroredStrategy two(2, quick());
  expect_refused(
      two,
      [](ReplicaContext& context) {
        if (context.local_id() == 0) context.merge_call([](Strategy&) {});
      },
      "all replicas or by none");
  expect_refused(
      two,
      [](ReplicaContext& context) {
        if (context.local_id() == 1) context.merge_call([](Strategy&) {});
      },
      "all replicas or by none");
  expect_refused(
      two,
      [](ReplicaContext& context) {
        if (context.local_id() == 1)
          context.merge_call([](Strategy&) {});
        else
          context.merge_call([](Strategy&) {});
      },
      "replicas are in merge_call at");
  const auto mean = [](ReplicaContext& context, auto value) {
    return context.merge_call([](Strategy&, const auto& all) { return all[0]; }, value);
  };
  expect_refused(
      two,
      [&](ReplicaContext& context) {
        if (context.local_id() == 0)
          mean(context, 1.0F);
        else
          mean(context, std::string("a long enough string to be on the heap"));
      },
      "has values of other types");
  expect_refused(
      two,
      [](ReplicaContext& context) {
        context.merge_call([&](Strategy&) { static_cast<void>(context.all_reduce(1, sum)); });
      },
      "mismatching ReplicaContext");
  expect_refused(
      two, [&](ReplicaContext& context) { context.merge_call([](Strategy& merged) { merged.run([] {}); }); },
      "while it runs: inside merge_call");
  expect_refused(
      two, [](ReplicaContext& context) { context.merge_call([](Strategy&) { return PerReplica<int>({1}); }); },
      "a PerReplica of 1 values");
}

// Of the communicator, of operations of the program, and of a variable that all share.
TEST(Replicas, CallsAtAnotherLineAreAMismatchOnlyIfSet) {
  for (const bool is_strict : {false, true}) {
    if (is_strict) ::setenv("LOCKSTEP_STRICT", "1", 1);
    MirroredStrategy plain(2, quick());
    MirroredStrategy by_own_ops(2, quick(std::make_shared<ReductionToOneDevice>()));
    CentralStorageStrategy central(2, quick());
    ::unsetenv("LOCKSTEP_STRICT");
    for (Strategy* each :
         {static_cast<Strategy*>(&plain), static_cast<Strategy*>(&by_own_ops), static_cast<Strategy*>(&central)}) {
      const Scope scope = each->scope();
      Variable v(0, {.aggregation = Aggregation::sum});
      const auto call = [&](ReplicaContext& context) {
        if (context.local_id() == 0)
          v.assign_add(context.all_reduce(1, sum));
        else
          v.assign_add(context.all_reduce(1, sum));
      };
      if (is_strict) {
        EXPECT_NE(refusal([&] { each->run(call); }, Code::replica_failed).find("E016"), std::string::npos);
      } else {
        each->run(call);
        EXPECT_EQ(v.read().item(), 4) << each->describe();
      }
    }
  }
}

TEST(Replicas, WaitForAMergeCallWithoutLimit) {
  MirroredStrategy two(2, {.wait_limits = WaitLimits{std::chrono::milliseconds(300), std::chrono::milliseconds(700)},
                           .log = Log(LogLevel::off)});
  const auto met = two.run([](ReplicaContext& context) {
    return context.merge_call(
        [](Strategy&, const PerReplica<int>& mine) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1200));
          return mine;
        },
        context.local_id());
  });
  EXPECT_EQ(met, PerReplica<int>({0, 1}));
}

// First in a warning, then in the error.
TEST(Replicas, ThatDoNotComeToMeetAreNamed) {
  std::mutex mutex;
  std::vector<std::string> lines;
  MirroredStrategy three(3, {.wait_limits = WaitLimits{std::chrono::milliseconds(100), std::chrono::milliseconds(700)},
                             .log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) {
                               const std::lock_guard lock(mutex);
                               lines.emplace_back(line);
                             })});
  std::atomic<int> given_up = 0;
  const std::string said = refusal(
      [&] {
        three.run([&](ReplicaContext& context) {
          if (context.local_id() == 1) {
            while (given_up < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return;
          }
          try {
            context.merge_call([](Strategy&) {});
          } catch (const Error&) {
            ++given_up;
            throw;
          }
        });
      },
      Code::replica_failed);
  constexpr std::string_view missing = "replicas_test.cpp";
  EXPECT_NE(said.find("waited 700 ms in merge_call at "), std::string::npos) << said;
  EXPECT_NE(said.find(missing), std::string::npos) << said;
  EXPECT_NE(said.find(" for local replica 1 of 3"), std::string::npos) << said;
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("LOCKSTEP-E014 waiting for 100 ms in merge_call at "), std::string::npos) << lines[0];
  EXPECT_EQ(three.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], 3) << "used again";
}

TEST(Replicas, ExceptionsOfAMergeCallReachAll) {
  MirroredStrategy two(2, quick());
  expect_refused(
      two,
      [](ReplicaContext& context) { context.merge_call([](Strategy&) { throw std::runtime_error("in the middle"); }); },
      "in the middle");
  expect_refused(
      two,
      [](ReplicaContext& context) {
        try {
          context.merge_call([](Strategy&) { throw std::runtime_error("in the middle"); });
        } catch (const std::runtime_error&) {
          if (context.local_id() == 1) throw;  // replica 0 keeps it to itself
        }
      },
      "for all replicas, threw: in the middle");
}

TEST(Replicas, SwallowedFailuresEndTheRun) {
  MirroredStrategy two(2, quick());
  EXPECT_NE(refusal(
                [&] {
                  two.run([](ReplicaContext& context) {
                    std::vector<float> data(context.local_id() == 0 ? 10 : 11);
                    try {
                      context.all_reduce(data, sum);
                    } catch (const Error&) {
                      return;
                    }
                  });
                },
                Code::already_failed)
                .find("no replica said so"),
            std::string::npos);
  EXPECT_EQ(two.reduce("SUM", PerReplica<int>({1, 2})), 3) << "fixed, also for a call outside of run";
}

TEST(Replicas, HaveValuesForAllOfThem) {
  MirroredStrategy two(2, quick());
  const std::string said = refusal([&] { two.run([](int) {}, PerReplica<int>({1, 2, 3})); }, Code::usage);
  EXPECT_NE(said.find("a PerReplica of 3 values in a strategy with 2 replicas in this process"), std::string::npos)
      << said;
  const auto flags = two.run([](ReplicaContext& context) { return context.local_id() == 1; });
  EXPECT_EQ(flags, PerReplica<bool>({false, true}));
  const auto owned = two.run([](ReplicaContext& context) { return std::make_unique<int>(context.local_id()); });
  EXPECT_EQ(*owned[1], 1);
}

}  // namespace
}  // namespace lockstep
