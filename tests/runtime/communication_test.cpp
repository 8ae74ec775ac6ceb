// SPDX-License-Identifier: Apache-2.0
// Hints about communication: how they merge, what follows from them, and that calls keep to them.
#include "runtime/communication.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/cross_device_ops.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/runtime/ring_sums.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using test::quick;
using test::refusal;
using Implementation = CommunicationImplementation;

TEST(CommunicationOptions, OfACallGoBeforeTheStrategys) {
  const CommunicationOptions strategy{.bytes_per_pack = 100, .timeout = milliseconds(5)};
  EXPECT_EQ(strategy.merged({}), strategy);
  EXPECT_EQ(CommunicationOptions{}.merged(strategy), strategy);
  const CommunicationOptions call{.timeout = milliseconds(7), .implementation = Implementation::ring};
  EXPECT_EQ(strategy.merged(call), (CommunicationOptions{100, milliseconds(7), Implementation::ring}));
  EXPECT_EQ(call.merged(strategy), (CommunicationOptions{100, milliseconds(5), Implementation::ring}));
}

TEST(CommunicationOptions, OutOfRangeAreRefused) {
  const auto made_with = [](CommunicationOptions options) {
    StrategyOptions all = quick();
    all.communication = options;
    return [all] { MirroredStrategy(2, all); };
  };
  EXPECT_NE(refusal(made_with({.bytes_per_pack = -1}), Code::usage).find("bytes_per_pack -1"), std::string::npos);
  EXPECT_NE(refusal(made_with({.timeout = milliseconds(-1)}), Code::usage).find("a timeout of -0.001 s"),
            std::string::npos);
  MirroredStrategy strategy(1, quick());
  const PerReplica<Tensor<float>> value{1.F};
  refusal([&] { strategy.extended().reduce_to("SUM", value, {}, {.bytes_per_pack = -5}); }, Code::usage);
}

TEST(Ways, FollowFromDevicesAndOptions) {
  struct Row {
    Implementation wished;
    std::vector<std::string> devices;
    bool has_nccl;
    Order order;
    CommunicationBackend by;
    bool is_requested;
    std::string_view why;
  };
  const std::vector<std::string> cpus{"CPU", "CPU"};
  const std::vector<std::string> gpus{"GPU", "GPU"};
  const std::vector<std::string> both{"CPU", "GPU"};
  const Row rows[] = {
      {Implementation::automatic, cpus, true, Order::reproducible, CommunicationBackend::own, true,
       "no replica is on a GPU"},
      {Implementation::automatic, gpus, true, Order::reproducible, CommunicationBackend::nccl, true,
       "all replicas are on GPUs"},
      {Implementation::automatic, gpus, false, Order::reproducible, CommunicationBackend::own, true,
       "there is no NCCL to use"},
      {Implementation::automatic, both, true, Order::fast, CommunicationBackend::one_device, true,
       "on 1 GPUs and on 1 processors, so values go to the first replica"},
      {Implementation::nccl, cpus, true, Order::fast, CommunicationBackend::own, false,
       "Enabled NCCL communication but no GPUs detected"},
      {Implementation::nccl, gpus, true, Order::fast, CommunicationBackend::nccl, true, "all replicas are on GPUs"},
      {Implementation::nccl, gpus, false, Order::fast, CommunicationBackend::own, false, "there is no NCCL to use"},
      {Implementation::nccl, both, true, Order::fast, CommunicationBackend::one_device, false, "on 1 GPUs"},
      {Implementation::ring, cpus, true, Order::fast, CommunicationBackend::ring, true, "asked for"},
      {Implementation::ring, gpus, true, Order::fast, CommunicationBackend::ring, true, "asked for"},
      {Implementation::ring, both, true, Order::fast, CommunicationBackend::ring, true, "asked for"},
      {Implementation::ring, cpus, true, Order::reproducible, CommunicationBackend::own, false, "an order of its own"},
  };
  for (const Row& row : rows) {
    const CommunicationChoice choice = choose_communication(row.wished, row.devices, row.has_nccl, row.order);
    EXPECT_EQ(choice.backend, row.by) << row.why;
    EXPECT_EQ(choice.is_requested, row.is_requested) << row.why;
    EXPECT_NE(choice.why.find(row.why), std::string::npos) << choice.why;
  }
}

TEST(Packs, CloseWhenTheyAreMoreThanWasSaid) {
  using Packs = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(plan_packs_of_bytes({}, 100), Packs{});
  EXPECT_EQ(plan_packs_of_bytes({40, 40, 40}, 0), (Packs{{0, 3}}));
  EXPECT_EQ(plan_packs_of_bytes({40, 40, 40, 40}, 100), (Packs{{0, 3}, {3, 4}}));
  EXPECT_EQ(plan_packs_of_bytes({40, 40, 40, 40}, 39), (Packs{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(plan_packs_of_bytes({40, 40, 40, 40}, 40), (Packs{{0, 2}, {2, 4}}));
  EXPECT_EQ(plan_packs_of_bytes({500, 1, 1}, 100), (Packs{{0, 1}, {1, 3}}));
}

// Each pack that it is given, by the bytes in it.
class Noting : public PackedOps {
 public:
  Noting() : PackedOps("Noting", 1) {}
  std::vector<std::size_t> packs;

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack,
                   std::size_t /*number*/) override {
    std::size_t bytes = 0;
    for (const TensorViews& each : pack) bytes += each.front().bytes();
    packs.push_back(bytes);
    group.all_reduce(op, pack);
  }
};

TEST(Packs, AreOfSoManyBytesWithTheLastValuesFirst) {
  const auto ops = std::make_shared<Noting>();
  StrategyOptions options = quick();
  options.cross_device_ops = ops;
  options.communication.bytes_per_pack = 40;
  MirroredStrategy strategy(2, options);
  std::vector<std::pair<PerReplica<Tensor<float>>, Destinations>> values;
  for (const std::int64_t size : {1, 2, 3, 4, 5, 6}) {
    const Tensor<float> mine(TensorShape{size}, 1.F);
    values.emplace_back(PerReplica<Tensor<float>>{mine, mine}, Destinations());
  }
  const auto all = strategy.extended().batch_reduce_to("SUM", values);
  EXPECT_EQ(ops->packs, (std::vector<std::size_t>{24 + 20, 16 + 12 + 8 + 4})) << "6 and 5 floats, and the others";
  for (const auto& each : all) EXPECT_EQ(each.value()[0], 2.F);
  ops->packs.clear();
  static_cast<void>(strategy.extended().batch_reduce_to("SUM", values, {.bytes_per_pack = 1000}));
  EXPECT_EQ(ops->packs, std::vector<std::size_t>{84}) << "as the call says";
}

TEST(Packs, DoNotChangeResultsInReplicas) {
  for (const std::int64_t bytes : {0, 1, 100, 1'000'000}) {
    StrategyOptions options = quick();
    options.communication.bytes_per_pack = bytes;
    MirroredStrategy strategy(3, options);
    const auto all = strategy.run([](ReplicaContext& context) {
      std::vector<std::vector<float>> mine;
      for (std::size_t size : {1U, 30U, 0U, 700U})
        mine.emplace_back(size, 0.1F * static_cast<float>(context.local_id()));
      context.all_reduce(mine, sum);
      context.all_reduce(mine, sum, {.bytes_per_pack = 8});
      return mine;
    });
    for (const auto& each : all) {
      for (const float value : each[2]) EXPECT_FLOAT_EQ(value, 0.9F);
    }
  }
}

// Of two replicas, one that comes late.
std::string late(MirroredStrategy& strategy, const CommunicationOptions& options) {
  return refusal(
      [&] {
        strategy.run([&](ReplicaContext& context) {
          if (context.local_id() == 1) std::this_thread::sleep_for(milliseconds(700));
          std::vector<float> value(10);
          context.all_reduce(value, sum, options);
        });
      },
      Code::replica_failed);
}

TEST(Timeouts, OfOneCallNameTheMissingReplicas) {
  MirroredStrategy strategy(2, quick());
  const std::string words = late(strategy, {.timeout = milliseconds(200)});
  EXPECT_NE(words.find("E014"), std::string::npos) << words;
  EXPECT_NE(words.find("the program has set this call's limit"), std::string::npos) << words;
  EXPECT_NE(words.find("replica 1"), std::string::npos) << words;
  // The next call has the strategy's again.
  const auto sums = strategy.run([](ReplicaContext& context) {
    if (context.local_id() == 1) std::this_thread::sleep_for(milliseconds(400));
    return context.all_reduce(1, sum);
  });
  EXPECT_EQ(sums[0], 2);
}

TEST(Timeouts, OfTheStrategyAreForAllCalls) {
  StrategyOptions options = quick();
  options.communication.timeout = milliseconds(200);
  MirroredStrategy strategy(2, options);
  EXPECT_NE(late(strategy, {}).find("replica 1"), std::string::npos);
  const auto sums = strategy.run([](ReplicaContext& context) {
    if (context.local_id() == 1) std::this_thread::sleep_for(milliseconds(400));
    std::vector<int> value{1};
    context.all_reduce(value, sum, {.timeout = std::chrono::seconds(20)});
    return value[0];
  });
  EXPECT_EQ(sums[0], 2) << "a call may have longer";
}

TEST(Explanations, NameTheImplementationAndItsReason) {
  StrategyOptions options = quick();
  std::vector<std::string> lines;
  options.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto explained = [&](Implementation implementation, Order order) {
    lines.clear();
    options.communication.implementation = implementation;
    options.order = order;
    MirroredStrategy strategy(4, options);
    const std::string words = strategy.explain();
    EXPECT_EQ(strategy.explain(), words);
    EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.all_reduce(1.F, sum); })[3], 4.F);
    return words;
  };
  const std::string own = explained(Implementation::automatic, Order::reproducible);
  EXPECT_NE(own.find("communication AUTO: no replica is on a GPU"), std::string::npos) << own;
  EXPECT_NE(own.find("all_reduce of 64 KiB: node"), std::string::npos) << own;
  EXPECT_TRUE(lines.empty());
  const std::string ring = explained(Implementation::ring, Order::fast);
  EXPECT_NE(ring.find("communication RING: asked for"), std::string::npos) << ring;
  EXPECT_NE(ring.find("all_reduce of 64 KiB: ring"), std::string::npos) << ring;
  EXPECT_TRUE(lines.empty());
  explained(Implementation::ring, Order::reproducible);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("a ring adds in an order of its own"), std::string::npos) << lines[0];
  ::setenv("LOCKSTEP_ALGORITHM", "all_reduce:tree", 1);
  explained(Implementation::ring, Order::fast);
  ::unsetenv("LOCKSTEP_ALGORITHM");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("LOCKSTEP_ALGORITHM says otherwise: all_reduce:tree"), std::string::npos) << lines[0];
  explained(Implementation::nccl, Order::reproducible);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("Enabled NCCL communication but no GPUs detected"), std::string::npos) << lines[0];
}

// A row of the table wins over the node's memory. Strategies of threads read it, and it is the same in every run.
TEST(Explanations, FollowTheTableOfMeasurements) {
  const std::string path = text(testing::TempDir(), "choices.", ::getpid());
  std::ofstream(path) << "all_reduce 2-8 1 0-1K tree 0 measured once\n";
  ::setenv("LOCKSTEP_TABLE", path.c_str(), 1);
  MirroredStrategy strategy(3, quick());
  MirroredStrategy again(3, quick());
  std::ofstream(path) << "for 0123456789abcdef\nall_reduce 2-8 1 0-1K tree 0 measured elsewhere\n";
  StrategyOptions options = quick();
  std::vector<std::string> lines;
  options.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const MirroredStrategy foreign(3, options);
  ::unsetenv("LOCKSTEP_TABLE");
  std::filesystem::remove(path);
  const std::string before = strategy.explain();
  EXPECT_NE(before.find(text("all_reduce of 4 B: tree, line 1 of ", path, ": measured once")), std::string::npos)
      << before;
  EXPECT_NE(before.find("all_reduce of 64 KiB: node, the members share"), std::string::npos) << before;
  EXPECT_EQ(again.explain(), before);
  for (int i = 0; i < 50; ++i) strategy.reduce("SUM", PerReplica<float>{1, 2, 3});
  EXPECT_EQ(strategy.explain(), before) << "runs do not change it";
  EXPECT_NE(foreign.explain().find("all_reduce of 4 B: node"), std::string::npos) << foreign.explain();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("a MirroredStrategy of threads does without a table"), std::string::npos) << lines[0];
}

TEST(Rings, AddInTheirOwnOrder) {
  for (const int replicas : {3, 4}) {
    const std::size_t count = 240;
    const auto sums = [&](const StrategyOptions& options) {
      MirroredStrategy strategy(replicas, options);
      return strategy.run([&](ReplicaContext& context) {
        std::vector<float> mine = test::ring_values(context.replica_id_in_sync_group(), count);
        context.all_reduce(mine, sum);
        return mine;
      });
    };
    StrategyOptions options = quick();
    EXPECT_NE(sums(options)[0], test::ring_sums(replicas, count)) << "the tree has other bits";
    options.order = Order::fast;
    options.communication.implementation = Implementation::ring;
    const auto found = sums(options);
    for (const auto& each : found.local()) EXPECT_EQ(each, test::ring_sums(replicas, count));
  }
}

TEST(Explanations, SayThatACallCannotChoose) {
  StrategyOptions options = quick();
  std::vector<std::string> lines;
  options.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  MirroredStrategy strategy(1, options);
  for (int i = 0; i < 2; ++i) {
    strategy.run([](ReplicaContext& context) {
      std::vector<float> value(1);
      context.all_reduce(value, sum, {.implementation = Implementation::ring});
    });
  }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("a call asks for communication = RING"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace lockstep
