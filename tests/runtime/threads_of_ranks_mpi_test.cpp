// SPDX-License-Identifier: Apache-2.0
// Several replicas in each of several ranks: one numbering, the same values and bits as any other layout of as many
// replicas, in memory that the node shares and by messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/cross_device_ops.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

Session by_messages() {
  Settings settings = Settings::from_environment();
  settings.set(Setting::node_memory, "0");
  return Session({.settings = settings});
}

// How many replicas each rank has: two each; two, one, one, ...; one, two, three, ...
std::vector<std::vector<int>> layouts(int ranks) {
  std::vector<std::vector<int>> all(3, std::vector<int>(static_cast<std::size_t>(ranks), 1));
  std::ranges::fill(all[0], 2);
  all[1].front() = 2;
  std::iota(all[2].begin(), all[2].end(), 1);
  return all;
}

// The sums of all replicas' values, as each of them here sees them.
std::vector<std::vector<float>> sums_in(Strategy& strategy, std::size_t count) {
  const auto all = strategy.run([count](ReplicaContext& context) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_of(context.replica_id_in_sync_group(), i);
    context.all_reduce(data, sum);
    return data;
  });
  return {all.local().begin(), all.local().end()};
}

void check_layout(Session& session, const std::vector<int>& numbers) {
  const int mine = numbers[static_cast<std::size_t>(session.rank())];
  const int all = std::accumulate(numbers.begin(), numbers.end(), 0);
  const int first = std::accumulate(numbers.begin(), numbers.begin() + session.rank(), 0);
  MultiWorkerMirroredStrategy strategy(session, mine, quiet());
  EXPECT_EQ(strategy.num_replicas_in_sync(), all);
  EXPECT_EQ(strategy.num_local_replicas(), mine);
  const auto ids = strategy.run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  for (int local = 0; local < mine; ++local) EXPECT_EQ(ids[local], first + local);
  EXPECT_EQ(strategy.reduce("SUM", ids), all * (all - 1) / 2);

  MirroredStrategy threads(all, quiet());
  for (const std::size_t count : {1UL, 100UL, 3000UL, 200'000UL}) {
    const std::vector<float> expected = sums_in(threads, count).front();
    for (const std::vector<float>& each : sums_in(strategy, count))
      ASSERT_EQ(each, expected) << count << " floats, " << all << " replicas";
  }
  const auto met = strategy.run([](ReplicaContext& context) {
    const auto largest = [](Strategy& merged, const PerReplica<int>& each) { return merged.reduce(max, each); };
    int found = 0;
    for (int i = 0; i < 3; ++i) found = context.merge_call(largest, context.replica_id_in_sync_group() + i);
    return found;
  });
  for (int local = 0; local < mine; ++local) EXPECT_EQ(met[local], all + 1);
}

TEST(ThreadsOfRanks, HaveOneNumberingAndTheBitsOfThreadsInOneProcess) {
  for (const auto& numbers : layouts(world().size())) check_layout(session(), numbers);
}

TEST(ThreadsOfRanks, ByMessagesAsWell) {
  if (session().backend()) GTEST_SKIP() << lacks("needs MPI, for a session of its own");
  Session messages = by_messages();
  for (const auto& numbers : layouts(world().size())) check_layout(messages, numbers);
}

// By default there are such threads only if the ranks are on several nodes.
TEST(ThreadsOfRanks, MayHaveThreadsThatContinueLargeSums) {
  if (session().backend()) GTEST_SKIP() << lacks("needs MPI, for a session of its own");
  Session messages = by_messages();
  for (const int mine : {1, 2}) {
    MultiWorkerMirroredStrategy beside(messages, mine, {.progress_thread = true});
    MultiWorkerMirroredStrategy plain(messages, mine, {.progress_thread = false});
    for (const std::size_t count : {10U, 100'000U}) EXPECT_EQ(sums_in(beside, count), sums_in(plain, count));
  }
}

TEST(ThreadsOfRanks, SendEachOtherMessagesAndSplit) {
  if (session().backend()) GTEST_SKIP() << lacks("needs MPI, for a session of its own");
  Session messages = by_messages();
  for (Session* each : {&session(), &messages}) {
    MultiWorkerMirroredStrategy strategy(*each, 2, quiet());
    strategy.run([](ReplicaContext& context) {
      Communicator& all = context.communicator();
      const int me = all.rank();
      const int n = all.size();
      // Everybody to everybody, told apart though two of them share a process.
      std::vector<int> out(static_cast<std::size_t>(n));
      std::vector<int> in(static_cast<std::size_t>(n));
      std::iota(out.begin(), out.end(), 100 * me);
      all.all_to_all(out, in);
      for (int other = 0; other < n; ++other) EXPECT_EQ(in[static_cast<std::size_t>(other)], 100 * other + me);
      std::vector<int> mine{me};
      std::vector<int> theirs{-1};
      all.sendrecv(mine, (me + 1) % n, theirs, (me + n - 1) % n);
      EXPECT_EQ(theirs[0], (me + n - 1) % n);
      // The first threads of all ranks, and the second ones; and those of one rank.
      Communicator half = *all.split(me % 2, me);
      std::vector<int> sums{me};
      half.all_reduce(sums, sum);
      EXPECT_EQ(sums[0], n / 2 * (me % 2) + (n / 2 - 1) * n / 2);
      Communicator pair = half.duplicate("again");
      std::vector<int> again{1};
      pair.all_reduce(again, sum);
      EXPECT_EQ(again[0], n / 2);
      Communicator own = *all.split(me / 2, -me);
      EXPECT_EQ(own.size(), 2);
      EXPECT_EQ(own.rank(), 1 - me % 2) << "the later one has the lower key";
    });
  }
}

TEST(ThreadsOfRanks, CombineByOperationsOfTheProgramsChoice) {
  const std::vector<std::shared_ptr<CrossDeviceOps>> all = {std::make_shared<NcclAllReduce>(2),
                                                            std::make_shared<HierarchicalCopyAllReduce>(),
                                                            std::make_shared<ReductionToOneDevice>()};
  for (const auto& ops : all) {
    for (const int replicas : {1, 2}) {
      StrategyOptions options = quiet();
      options.cross_device_ops = ops;
      MultiWorkerMirroredStrategy strategy(session(), replicas, options);
      EXPECT_EQ(&strategy.cross_device_ops(), ops.get());
      const int n = strategy.num_replicas_in_sync();
      const auto found = strategy.run([](ReplicaContext& context) {
        std::vector<float> data(1000, static_cast<float>(context.replica_id_in_sync_group() + 1));
        context.all_reduce(data, sum);
        return data[999] + 1000 * context.all_reduce(data[0], avg);
      });
      const auto total = static_cast<float>(n * (n + 1) / 2);
      for (const float each : found.local()) EXPECT_EQ(each, 1001 * total) << ops->describe();
      const auto ids = strategy.distribute_values_from([](ValueContext at) { return at.replica_id_in_sync_group; });
      EXPECT_EQ(strategy.reduce(max, ids), n - 1) << ops->describe();
    }
  }
}

// By levels too a failure is known at once, also before anybody has been further than its process.
TEST(ThreadsOfRanks, CombineByLevelsOrReportTheReason) {
  StrategyOptions options = quiet();
  options.cross_device_ops = std::make_shared<HierarchicalCopyAllReduce>();
  MultiWorkerMirroredStrategy strategy(session(), 2, options);
  const auto together = [](Strategy& all, const PerReplica<Tensor<float>>& value) { return all.reduce("SUM", value); };
  const auto fails = [&] {
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == 1) throw std::runtime_error("mine alone");
      context.merge_call(together, Tensor<float>(1.F));
    });
  };
  const std::string words = refusal(fails, Code::replica_failed);
  EXPECT_NE(words.find("mine alone"), std::string::npos) << words;
  MultiWorkerMirroredStrategy again(session(), 2, options);
  const auto sums = again.run([&](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    return context.merge_call(together, Tensor<float>(id));
  });
  const auto n = static_cast<float>(again.num_replicas_in_sync());
  EXPECT_EQ(sums[0].item(), n * (n - 1) / 2);
}

TEST(ThreadsOfRanks, OtherOperationsOnOneRankAreRefusedOnAll) {
  StrategyOptions options = quiet();
  if (session().size() == 1) GTEST_SKIP() << lacks("needs two ranks");
  if (session().rank() == 0) options.cross_device_ops = std::make_shared<HierarchicalCopyAllReduce>();
  EXPECT_PRED2(holds, refusal([&] { MultiWorkerMirroredStrategy(session(), 2, options); }, Code::usage),
               "other cross_device_ops than the rest");
  session().world().barrier();
}

// Takes one value of one process for what cannot be added up.
class Odd : public CrossDeviceOps {
 public:
  std::string describe() const override { return "Odd"; }

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override {
    TensorViews odd = value;
    if (group.first() == 2) odd.back().type = DataType::boolean;
    group.all_reduce(op, {odd});
  }
};

TEST(ThreadsOfRanks, ReportWhyACallForAllCannotBegin) {
  if (session().size() == 1) GTEST_SKIP() << lacks("needs two ranks");
  StrategyOptions options = quiet();
  options.cross_device_ops = std::make_shared<Odd>();
  MultiWorkerMirroredStrategy strategy(session(), 2, options);
  const std::string words = refusal(
      [&] {
        strategy.reduce("SUM", PerReplica<float>{1, 2});
      },
      session().rank() == 1 ? Code::usage : Code::peer_failed);
  EXPECT_NE(words.find("are not reduced"), std::string::npos) << words;
}

TEST(ThreadsOfRanks, CanBeMadeAgainAndAgain) {
  for (int round = 0; round < 4; ++round) {
    MultiWorkerMirroredStrategy strategy(session(), 1 + (round + world().rank()) % 2, quiet());
    const auto found = strategy.run([](ReplicaContext& context) { return context.all_reduce(1, sum); });
    EXPECT_EQ(found[0], strategy.num_replicas_in_sync());
  }
}

TEST(ThreadsOfRanks, MoreThanThereMayBeOnOneRankAreRefusedOnAll) {
  const int last = world().size() - 1;
  const auto make = [&] { MultiWorkerMirroredStrategy strategy(session(), world().rank() == last ? 0 : 2, quiet()); };
  EXPECT_NE(refusal(make, Code::usage).find(text("with 0 replicas on rank ", last)), std::string::npos);
}

TEST(ThreadsOfRanks, OfARankAloneCanBeUsedAgainAfterAFailure) {
  if (world().size() > 1) GTEST_SKIP() << lacks("needs a rank that is alone");
  for (const int replicas : {1, 2}) {
    MultiWorkerMirroredStrategy strategy(session(), replicas, quiet());
    EXPECT_THROW(strategy.run([] { throw std::runtime_error("once"); }), ReplicaError);
    EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(1, sum); })[replicas - 1], replicas);
  }
}

}  // namespace
}  // namespace lockstep::test
