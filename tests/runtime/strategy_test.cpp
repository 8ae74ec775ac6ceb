// SPDX-License-Identifier: Apache-2.0
// One set of tests for every strategy: what replicas see, what they do together, and what is refused.
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "runtime/default_strategy.hpp"
#include "runtime/strategy.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using test::refusal;

using test::quick;

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Strategy>()> make;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class EveryStrategy : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Strategy> strategy = GetParam().make();
  int size() const { return strategy->num_replicas_in_sync(); }
  int sum_of_ids() const { return size() * (size() - 1) / 2; }
};

TEST_P(EveryStrategy, runs_a_function_in_every_replica) {
  const auto ids = strategy->run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  ASSERT_EQ(ids.size(), strategy->num_local_replicas());
  for (int i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(strategy->reduce("SUM", ids), sum_of_ids());
  EXPECT_EQ(strategy->reduce(max, ids), size() - 1);
  std::atomic<int> calls = 0;
  strategy->run([&] { ++calls; });
  EXPECT_EQ(calls, strategy->num_local_replicas());
}

TEST_P(EveryStrategy, arguments_are_each_replicas_own_or_the_same_for_all) {
  auto own = strategy->distribute_values_from([](ValueContext context) {
    return static_cast<float>(10 * context.replica_id_in_sync_group + context.num_replicas_in_sync);
  });
  const auto sums = strategy->run([](float mine, int same) { return mine + static_cast<float>(same); }, own, 100);
  for (int i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], static_cast<float>(10 * i + size() + 100));
  strategy->run([](float& mine) { mine = -1; }, own);
  EXPECT_EQ(strategy->local_results(own), std::vector<float>(static_cast<std::size_t>(own.size()), -1.0F));
  EXPECT_EQ(strategy->local_results(7), std::vector<int>{7});
}

TEST_P(EveryStrategy, replicas_combine_and_gather) {
  const auto results = strategy->run([](ReplicaContext& context) {
    std::vector<double> data(1000, context.replica_id_in_sync_group() + 1.0);
    context.all_reduce(data, sum);
    const int biggest = context.all_reduce(context.replica_id_in_sync_group(), max);
    const auto all = context.all_gather(context.replica_id_in_sync_group());
    auto request = context.all_reduce_async(data, avg);
    request.wait();
    return data[999] + 1000 * biggest + 1e6 * static_cast<double>(all.back() + static_cast<int>(all.size()));
  });
  const int n = size();
  for (const double each : results.local()) EXPECT_EQ(each, n * (n + 1) / 2 + 1000 * (n - 1) + 1e6 * (2 * n - 1));
}

TEST_P(EveryStrategy, contexts_are_what_they_must_be) {
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_EQ(&get_strategy(), &default_strategy());
  {
    const Scope scope = strategy->scope();
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(replica_context(), nullptr);
    const Scope again = strategy->scope();
    EXPECT_TRUE(in_cross_replica_context());
  }
  EXPECT_FALSE(has_strategy());
  strategy->run([&](ReplicaContext& context) {
    EXPECT_EQ(replica_context(), &context);
    EXPECT_EQ(&get_strategy(), strategy.get());
    EXPECT_FALSE(in_cross_replica_context());
    const Scope scope = strategy->scope();
    EXPECT_EQ(replica_context(), &context) << "whoever is in a replica stays there";
    EXPECT_EQ(&context.strategy(), strategy.get());
    EXPECT_EQ(context.num_replicas_in_sync(), size());
  });
  EXPECT_FALSE(has_strategy());
}

TEST_P(EveryStrategy, replicas_come_together_in_the_middle) {
  const auto all = strategy->run([&](ReplicaContext& context) {
    int total = 0;
    for (int step = 0; step < 20; ++step) {  // in loops and branches, as often as they like
      if (step % 3 == 1) continue;
      const int mine = context.merge_call(
          [&](Strategy& merged, const PerReplica<int>& ids, const PerReplica<std::string>& words) {
            EXPECT_TRUE(in_cross_replica_context());
            EXPECT_EQ(&merged, strategy.get());
            EXPECT_EQ(words[0], "step " + std::to_string(step));
            const int sum = merged.reduce("SUM", ids);
            std::deque<int> back;
            for (const int id : ids.local()) back.push_back(1000 * id + sum);
            return PerReplica<int>(back);
          },
          context.replica_id_in_sync_group(), text("step ", step));
      EXPECT_EQ(mine, 1000 * context.replica_id_in_sync_group() + sum_of_ids());
      total += context.merge_call([](Strategy&) { return 1; });
      context.merge_call([](Strategy&) {});
      EXPECT_EQ(replica_context(), &context);
    }
    return total;
  });
  for (const int each : all.local()) EXPECT_EQ(each, 13);
}

TEST_P(EveryStrategy, what_one_replica_throws_is_thrown_once_with_its_name) {
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

TEST_P(EveryStrategy, plain_values_are_reduced_where_that_has_a_meaning) {
  EXPECT_EQ(strategy->reduce("mean", 3.5), 3.5);
  EXPECT_EQ(strategy->reduce(max, 4), 4);
  EXPECT_EQ(strategy->reduce("SUM", 0), 0);
  if (size() == 1) {
    EXPECT_EQ(strategy->reduce("SUM", 1.0), 1.0);
  } else {
    const std::string said = refusal([&] { strategy->reduce("SUM", 1.0); }, Code::usage);
    EXPECT_NE(said.find("cannot be reduced with the given reduce op SUM"), std::string::npos) << said;
  }
  EXPECT_NE(refusal([&] { strategy->reduce("average", 1); }, Code::usage).find("no reduction 'average'"),
            std::string::npos);
}

TEST_P(EveryStrategy, calls_for_all_are_refused_in_a_replica) {
  if (strategy.get() == &default_strategy()) return;
  const auto refused = [&](const std::function<void()>& call) {
    try {
      strategy->run([&](ReplicaContext&) { call(); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ReplicaError& error) {
      EXPECT_NE(std::string(error.what()).find("requires being in cross-replica context"), std::string::npos)
          << error.what();
    }
  };
  refused([&] { strategy->run([] {}); });
  refused([&] { strategy->reduce(max, 1); });
  refused([&] { strategy->distribute_values_from([](ValueContext) { return 1; }); });
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryStrategy,
    testing::Values(Kind{"one", [] { return std::make_unique<OneDeviceStrategy>(quick()); }},
                    Kind{"mirrored1", [] { return std::make_unique<MirroredStrategy>(1, quick()); }},
                    Kind{"mirrored2", [] { return std::make_unique<MirroredStrategy>(2, quick()); }},
                    Kind{"mirrored3", [] { return std::make_unique<MirroredStrategy>(3, quick()); }},
                    Kind{"mirrored4", [] { return std::make_unique<MirroredStrategy>(4, quick()); }}),
    [](const auto& each) { return each.param.name; });

TEST(Default, is_there_without_being_asked_for) {
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
TEST(Default, is_every_threads_own) {
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

TEST(Default, another_one_may_stand_in_for_it) {
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

TEST(Scopes, of_two_strategies_do_not_mix) {
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

TEST(Scopes, end_in_the_reverse_order) {
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

TEST(Scopes, of_a_strategy_that_has_gone_are_over) {
  auto two = std::make_unique<MirroredStrategy>(2, quick());
  set_strategy(two.get());
  auto scope = std::make_unique<Scope>(*two);
  two.reset();
  EXPECT_FALSE(has_strategy());
  scope.reset();
  EXPECT_EQ(&get_strategy(), &default_strategy());
}

TEST(Strategies, can_be_made_again_and_again) {
  for (int round = 0; round < 20; ++round) {
    MirroredStrategy strategy(1 + round % 4, quick());
    EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[0], 1 + round % 4);
  }
  refusal([] { MirroredStrategy none(0, quick()); }, Code::usage);
}

// The guide's example of values by replica.
TEST(Strategies, values_come_from_a_function_of_the_replica) {
  MirroredStrategy two(2, quick());
  const float values[] = {3.0F, 2.0F, 1.0F};
  const auto found =
      two.distribute_values_from([&](ValueContext context) { return values[context.replica_id_in_sync_group]; });
  EXPECT_EQ(two.local_results(found), (std::vector<float>{3.0F, 2.0F}));
  std::ostringstream out;
  out << found;
  EXPECT_EQ(out.str(), "PerReplica:{\n  0: 3,\n  1: 2\n}");
  OneDeviceStrategy one(quick());
  EXPECT_NE(refusal([&] { one.reduce(sum, found); }, Code::usage).find("a PerReplica of 2 values in a strategy with 1"),
            std::string::npos);
}

// Whatever the number of replicas is made of: the balanced tree over them.
TEST(Strategies, reduce_gives_the_bits_of_the_reproducible_order) {
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
