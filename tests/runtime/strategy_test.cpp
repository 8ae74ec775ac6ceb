// SPDX-License-Identifier: Apache-2.0
// Strategies of one process: how a failure ends a run, the default one, scopes, and making them.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>

#include "runtime/any_strategy.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using test::refusal;

using test::quick;

using StrategyOfThreads = test::EveryLayout;

TEST_P(StrategyOfThreads, AnExceptionOfOneReplicaIsThrownOnceWithItsName) {
  const int last = strategy->num_local_replicas() - 1;
  for (int round = 0; round < 3; ++round) {
    try {
      strategy->run([&](ReplicaContext& context) {
        if (context.local_id() == last) throw std::out_of_range("no row 7");
        if (round == 0) return;
        std::vector<float> data(1000, 1);
        if (round == 1) context.all_reduce(data, sum);
        if (round == 2) context.merge_call([](Strategy&) {});
        ADD_FAILURE() << "it was not cancelled";
      });
      FAIL() << "nothing was thrown";
    } catch (const ReplicaError& error) {
      EXPECT_EQ(error.replica(), last);
      EXPECT_NE(std::string(error.what()).find(text("replica ", last, " of ", size(), ": no row 7")), std::string::npos)
          << error.what();
      EXPECT_THROW(std::rethrow_exception(error.cause()), std::out_of_range);
    }
    EXPECT_FALSE(has_strategy());
    EXPECT_EQ(strategy->run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], size())
        << "used again";
  }
}

TEST_P(StrategyOfThreads, HasNoCluster) {
  EXPECT_EQ(strategy->cluster_resolver(), nullptr);
  const Scope scope = strategy->scope();
  EXPECT_EQ(get_strategy().cluster_resolver(), nullptr);
  EXPECT_EQ(default_strategy().cluster_resolver(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, StrategyOfThreads, testing::ValuesIn(test::layouts()),
                         [](const auto& each) { return each.param.name; });

// What replicas do while one of them calls exit().
void wait_in_collective(ReplicaContext& context) { static_cast<void>(context.all_reduce(1, sum)); }
void wait_in_merge_call(ReplicaContext& context) {
  context.merge_call([](Strategy&) {});
}
void ask_for_ever(ReplicaContext& context) {
  while (true) static_cast<void>(context.strategy().describe());
}

void exit_in_replica(Strategy& strategy, int which, void (*others)(ReplicaContext&)) {
  strategy.run([&](ReplicaContext& context) {
    if (context.local_id() != which) return others(context);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::exit(3);
  });
}

TEST(Replicas, ExitInTheirFunctionEndsTheProcessWithItsCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends_with_its_code = testing::ExitedWithCode(3);
  const auto on_stack = [](int which, void (*others)(ReplicaContext&)) {
    MirroredStrategy strategy(2);
    exit_in_replica(strategy, which, others);
  };
  EXPECT_EXIT(on_stack(0, wait_in_collective), ends_with_its_code, "");
  EXPECT_EXIT(on_stack(1, wait_in_merge_call), ends_with_its_code, "");
  const auto with_static_storage = [](int which, void (*others)(ReplicaContext&)) {
    // The other replica runs on meanwhile, after the strategy's end.
    std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    static MirroredStrategy strategy(2);
    exit_in_replica(strategy, which, others);
  };
  EXPECT_EXIT(with_static_storage(0, wait_in_collective), ends_with_its_code, "");
  EXPECT_EXIT(with_static_storage(1, ask_for_ever), ends_with_its_code, "");
  EXPECT_EXIT(exit_in_replica(default_strategy(), 0, ask_for_ever), ends_with_its_code, "");
}

TEST(Replicas, ThreadThatIsEndedInTheirFunctionEndsTheProcessByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_thread = [](bool in_merge_call) {
    MirroredStrategy strategy(2);
    strategy.run([&](ReplicaContext& context) {
      if (in_merge_call) context.merge_call([](Strategy&) { ::pthread_exit(nullptr); });
      if (context.local_id() == 1) ::pthread_exit(nullptr);
      static_cast<void>(context.all_reduce(1, sum));
    });
  };
  EXPECT_DEATH(end_thread(false),
               "E001 .*a thread was ended in the function of replica 1 of this process, by pthread_exit");
  EXPECT_DEATH(end_thread(true), "E001 .*a thread was ended in the function of merge_call at .*strategy_test.cpp");
}

void is_default_state() {
  EXPECT_EQ(&get_strategy(), &default_strategy());
  EXPECT_EQ(replica_context(), &default_strategy().replica(0));
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_FALSE(has_strategy());
}

TEST(Default, IsThereWithoutBeingAskedFor) {
  Strategy& strategy = get_strategy();
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy.reduce("SUM", 1.0), 1.0);
  EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(5, sum); })[0], 5);
  ASSERT_NE(replica_context(), nullptr);
  EXPECT_EQ(replica_context()->replica_id_in_sync_group(), 0);
  EXPECT_EQ(replica_context()->num_replicas_in_sync(), 1);
}

// Library code is written against it, whatever thread calls that.
TEST(Default, IsEveryThreadsOwn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([i] {
      for (int round = 0; round < 200; ++round) {
        Strategy& strategy = get_strategy();
        EXPECT_EQ(strategy.run([&](ReplicaContext& context) { return context.all_reduce(i, sum); })[0], i);
        EXPECT_EQ(replica_context()->merge_call([](Strategy&, const PerReplica<int>& mine) { return mine[0] + 1; }, i),
                  i + 1);
        EXPECT_EQ(replica_context()->all_gather(i), std::vector<int>{i});
        EXPECT_EQ(strategy.reduce(max, PerReplica<int>({i})), i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  MirroredStrategy two(2, quick());
  two.run([] { EXPECT_EQ(default_strategy().run([] { return 5; })[0], 5); });
  EXPECT_THROW(get_strategy().run([] { throw std::out_of_range("x"); }), ReplicaError);
}

TEST(Default, AnotherOneMayStandInForIt) {
  MirroredStrategy two(2, quick());
  set_strategy(&two);
  EXPECT_EQ(&get_strategy(), &two);
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_EQ(get_strategy().run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[1], 2);
  {
    const Scope scope = two.scope();
    refusal([] { set_strategy(nullptr); }, Code::usage);
  }
  set_strategy(nullptr);
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
}

TEST(Default, GivesWayToOneAfterTheOther) {
  MirroredStrategy one(1, quick());
  MirroredStrategy two(2, quick());
  for (MirroredStrategy* const each : {&one, &two}) {
    set_strategy(each);
    EXPECT_EQ(replica_context(), nullptr);
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_TRUE(has_strategy());
    EXPECT_EQ(&get_strategy(), each);
  }
  set_strategy(nullptr);
  is_default_state();
}

TEST(Default, MergesByItself) {
  is_default_state();
  ASSERT_NE(replica_context(), nullptr);
  const std::string said = replica_context()->merge_call(
      [](Strategy& strategy, const PerReplica<std::string>& word) {
        EXPECT_EQ(&strategy, &default_strategy());
        EXPECT_EQ(&get_strategy(), &default_strategy());
        EXPECT_EQ(replica_context(), nullptr);
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_FALSE(has_strategy());
        return "foo_" + word[0];
      },
      std::string("bar"));
  EXPECT_EQ(said, "foo_bar");
  is_default_state();
}

TEST(Default, HasAScopeThatKeepsOthersOutAndChangesNothing) {
  MirroredStrategy two(2, quick());
  const auto of_two = [&](float value) {
    const Scope scope = two.scope();
    return Variable(value).read().item();
  };
  EXPECT_EQ(of_two(1), 1);
  {
    const Scope scope = default_strategy().scope();
    is_default_state();
    const Scope again = default_strategy().scope();
    is_default_state();
    EXPECT_NE(refusal([&] { of_two(2); }, Code::usage).find("mixing different strategies"), std::string::npos);
    refusal([&] { two.run([] {}); }, Code::usage);
    Variable v(3.F);
    EXPECT_EQ(&v.strategy(), &default_strategy());
    v.assign_add(1.F);
    EXPECT_EQ(v.saved().item(), 4);
    ASSERT_NE(replica_context(), nullptr);
    EXPECT_EQ(replica_context()->all_reduce(5, sum), 5);
    EXPECT_EQ(default_strategy().run([] { return 5; })[0], 5);
    replica_context()->merge_call([](Strategy& strategy) {
      const Scope inner = strategy.scope();
      EXPECT_TRUE(in_cross_replica_context()) << "whoever speaks for all goes on doing so";
    });
  }
  is_default_state();
  EXPECT_EQ(of_two(5), 5);
}

TEST(Scopes, OfTwoStrategiesDoNotMix) {
  MirroredStrategy two(2, quick());
  OneDeviceStrategy one(quick());
  const Scope scope = two.scope();
  const std::string said = refusal([&] { const Scope other = one.scope(); }, Code::usage);
  EXPECT_NE(
      said.find(
          "mixing different strategies: OneDeviceStrategy with 1 replica is not MirroredStrategy with 2 replicas"),
      std::string::npos)
      << said;
  refusal([&] { one.run([] {}); }, Code::usage);
  EXPECT_EQ(&get_strategy(), &two);
}

TEST(Scopes, EndInTheReverseOrder) {
  std::vector<std::string> lines;
  MirroredStrategy two(
      2, {.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); })});
  auto first = std::make_unique<Scope>(two);
  auto second = std::make_unique<Scope>(two);
  first.reset();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("scope ended before one that was entered after it"), std::string::npos) << lines[0];
  EXPECT_EQ(&get_strategy(), &two);
  second.reset();
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(lines.size(), 1U);
}

TEST(Scopes, OfAStrategyThatHasGoneAreOver) {
  auto two = std::make_unique<MirroredStrategy>(2, quick());
  set_strategy(two.get());
  auto scope = std::make_unique<Scope>(*two);
  two.reset();
  EXPECT_FALSE(has_strategy());
  scope.reset();
  EXPECT_EQ(&get_strategy(), &default_strategy());
}

TEST(Strategies, CanBeMadeAgainAndAgain) {
  for (int round = 0; round < 20; ++round) {
    MirroredStrategy strategy(1 + round % 4, quick());
    EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], 1 + round % 4);
  }
  refusal([] { MirroredStrategy none(0, quick()); }, Code::usage);
}

// The guide's example of values by replica.
TEST(Strategies, ValuesComeFromAFunctionOfTheReplica) {
  MirroredStrategy two(2, quick());
  const float values[] = {3.0F, 2.0F, 1.0F};
  const auto found =
      two.distribute_values_from([&](ValueContext context) { return values[context.replica_id_in_sync_group]; });
  EXPECT_EQ(two.local_results(found), (std::vector<float>{3.0F, 2.0F}));
  std::ostringstream out;
  out << found;
  EXPECT_EQ(out.str(), "PerReplica:{\n  0: 3.0,\n  1: 2.0\n}");
  OneDeviceStrategy one(quick());
  EXPECT_NE(refusal([&] { one.reduce(sum, found); }, Code::usage).find("a PerReplica of 2 values in a strategy with 1"),
            std::string::npos);
}

AnyStrategy chosen(int replicas) {
  if (replicas > 1) return make_strategy<MirroredStrategy>(replicas, quick());
  return {};
}

TEST(AnyStrategies, OwnAStrategyOrReferToOne) {
  const auto replicas_of = [](Strategy& strategy) { return strategy.run([] { return 1; }).size(); };
  EXPECT_EQ(replicas_of(chosen(2)), 2);
  EXPECT_EQ(replicas_of(chosen(1)), 1);
  EXPECT_EQ(&*chosen(1), &default_strategy());
  MirroredStrategy three(3, quick());
  for (const bool many : {true, false}) {
    AnyStrategy strategy = many ? AnyStrategy(three) : chosen(2);
    const Strategy* const address = &*strategy;
    AnyStrategy moved = std::move(strategy);
    EXPECT_EQ(&*moved, address);
    EXPECT_EQ(&*strategy, &default_strategy()) << "after the move";  // NOLINT(bugprone-use-after-move)
    const Scope inside = moved->scope();
    EXPECT_EQ(&get_strategy(), address);
    EXPECT_EQ(moved->reduce("SUM", moved->run([] { return 1; })), many ? 3 : 2);
  }
  AnyStrategy last = chosen(2);
  last = std::make_unique<OneDeviceStrategy>(quick());
  EXPECT_EQ(last->num_replicas_in_sync(), 1);
}

TEST(Scopes, OfAThreadOutliveNoStrategy) {
  std::optional<MirroredStrategy> two(std::in_place, 2, quick());
  const ContextHandle late = [&] {
    const Scope inside(*two);
    return current_context();
  }();
  two.reset();
  EXPECT_NE(refusal([&] { const ContextHandle::Enter entered(late); }, Code::usage).find("has ended"),
            std::string::npos);
}

// Whatever the number of replicas is made of: the balanced tree over them.
TEST(Strategies, ReduceGivesTheBitsOfTheReproducibleOrder) {
  MirroredStrategy four(4, quick());
  const float parts[] = {1e8F, 1.0F, -1e8F, 1.0F};
  const auto values =
      four.distribute_values_from([&](ValueContext context) { return parts[context.replica_id_in_sync_group]; });
  const float expected = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  EXPECT_EQ(four.reduce(sum, values), expected);
  const auto inside =
      four.run([](ReplicaContext& context, float mine) { return context.all_reduce(mine, sum); }, values);
  for (const float each : inside.local()) EXPECT_EQ(each, expected);
}

}  // namespace
}  // namespace lockstep
