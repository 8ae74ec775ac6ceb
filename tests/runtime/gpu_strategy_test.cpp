// SPDX-License-Identifier: Apache-2.0
// Replicas on GPUs: which ones, what a thread's own GPU is in them, where variables are, and by what their gradients
// are reduced.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>

#include "runtime/any_tensor.hpp"
#include "runtime/cluster/resolver.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/variable.hpp"
#include "runtime/virtual_replicas.hpp"
#include "tests/runtime/gpu_replicas.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::test {
namespace {

TEST_F(GpuStrategies, HaveTheGpusThatTheProcessSees) {
  EXPECT_EQ(physical_devices("GPU"), (std::vector<std::string>{"gpu:0", "gpu:1", "gpu:2", "gpu:3"}));
  const MirroredStrategy all(quick());
  EXPECT_EQ(all.num_replicas_in_sync(), 4);
  EXPECT_EQ(all.devices()[3], "/job:localhost/replica:0/task:0/device:GPU:3");
  const std::string words = refusal([] { MirroredStrategy({"gpu:0", "gpu:4"}, quick()); }, Code::usage);
  EXPECT_NE(words.find("device:GPU:4"), std::string::npos) << words;
  EXPECT_NE(words.find("gpu:0, gpu:1, gpu:2, gpu:3"), std::string::npos) << words;
  EXPECT_PRED2(holds, refusal([] { MirroredStrategy({"gpu:0", "GPU:0"}, quick()); }, Code::usage), "no duplicates");
  const OneDeviceStrategy one("gpu:3", quick());
  EXPECT_EQ(one.devices().front(), "/job:localhost/replica:0/task:0/device:GPU:3");
}

TEST(GpuStrategiesWithoutGpus, AreOneReplicaOnProcessors) {
  const gpu::BackendOverride none(nullptr);
  EXPECT_TRUE(physical_devices("gpu").empty());
  const MirroredStrategy one(quick());
  EXPECT_EQ(one.devices(), std::vector<std::string>{"/job:localhost/replica:0/task:0/device:CPU:0"});
}

// The guard of the reference's guide: if tf.config.list_physical_devices('GPU'), else the default strategy.
Strategy& chosen_by_guard(std::optional<MirroredStrategy>& mirrored) {
  if (physical_devices("GPU").empty()) return get_strategy();
  return mirrored.emplace(quick());
}

TEST_F(GpuStrategies, AreChosenIfThereAreGpus) {
  std::optional<MirroredStrategy> mirrored;
  Strategy& strategy = chosen_by_guard(mirrored);
  EXPECT_EQ(&strategy, &*mirrored);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.reduce("SUM", strategy.run([] { return FakeGpus::used(); })), 0 + 1 + 2 + 3);
  const gpu::BackendOverride none(nullptr);
  mirrored.reset();
  EXPECT_EQ(&chosen_by_guard(mirrored), &default_strategy());
  EXPECT_EQ(chosen_by_guard(mirrored).run([] { return 7; })[0], 7);
}

TEST_F(GpuStrategies, TrainOnTheHostAndSayItOnce) {
  std::vector<std::string> lines;
  StrategyOptions options = quick();
  options.log = Log(LogLevel::notice, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  MirroredStrategy strategy({"gpu:0", "gpu:1"}, options);
  const Scope scope = strategy.scope();
  train::Sequential model(train::Dense(1, {.kernel_initializer = train::zeros(), .input_shape = TensorShape{1}}));
  model.compile("mse", train::SGD(0.1F));
  const Tensor<float> ones({8, 1}, 1.F);
  lines.clear();
  for (int i = 0; i < 2; ++i) model.fit(ones, ones, {.batch_size = 8, .verbose = train::Verbose::silent});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_PRED2(holds, lines[0], "the model computes on the host's copy of its variables");
  EXPECT_PRED2(holds, lines[0], "2 GPUs");
  EXPECT_NEAR(model.predict(ones)[0], 0.64F, 1e-6) << "from 0 over 0.4, with two variables";
}

TEST_F(GpuStrategies, AreCountedByResolvers) {
  const std::map<std::string, int> four{{"GPU", 4}};
  const TfConfigResolver config({}, [](const char*) {
    return R"({"cluster": {"worker": ["localhost:12345"]}, "task": {"type": "worker", "index": 0}})";
  });
  EXPECT_EQ(config.num_accelerators(), four);
  const auto alone = make_local_exchanges(1, {}, Log(LogLevel::off));
  EXPECT_EQ(MpiResolver(*alone.front()).num_accelerators(), four);
  EXPECT_EQ(SimpleResolver({}, std::nullopt, "grpc", {}, {{"GPU", 2}}).num_accelerators().at("GPU"), 2);
  const gpu::BackendOverride none(nullptr);
  EXPECT_TRUE(config.num_accelerators().empty());
}

TEST_F(GpuStrategies, BesideProcessorsCombineAtTheFirstReplica) {
  MirroredStrategy strategy({"cpu:0", "gpu:3", "gpu:1"}, quick());
  const std::string words = strategy.explain();
  EXPECT_PRED2(holds, words, "on 2 GPUs and on 1 processors, so values go to the first replica and back");
  EXPECT_PRED2(holds, words, "all_reduce of 64 KiB: tree, forced");
  const auto sums = strategy.run([](ReplicaContext& context) {
    const int me = context.replica_id_in_sync_group();
    std::pair mine(values_of(me, 5000), std::vector<std::int32_t>(100, me + 1));
    context.all_reduce(mine, sum);
    DeviceVector<float> there(values_of(me, 5000), std::max(FakeGpus::used(), 0));
    context.all_reduce(there, sum);
    EXPECT_EQ(on_host(there), mine.first);
    return mine;
  });
  for (int local = 0; local < 3; ++local) {
    EXPECT_EQ(std::get<0>(sums)[local], sums_on_processors(3, 5000));
    EXPECT_EQ(std::get<1>(sums)[local], std::vector<std::int32_t>(100, 6));
  }
  EXPECT_EQ(nccl().operations(), 0);
}

TEST_F(GpuStrategies, MakeAReplicasGpuItsThreadsOwn) {
  MirroredStrategy strategy(three, quick());
  const int before = FakeGpus::used();
  const auto used = strategy.run([] { return FakeGpus::used(); });
  EXPECT_EQ(used.local(), (std::deque{2, 0, 1}));
  EXPECT_EQ(FakeGpus::used(), before);
  const Scope inside(strategy);
  Variable v(1.F);
  const auto while_updated = strategy.update(v, [](Variable<float>&) { return FakeGpus::used(); });
  EXPECT_EQ(while_updated.local(), (std::deque{2, 0, 1}));
  EXPECT_EQ(FakeGpus::used(), before);
}

TEST_F(GpuStrategies, KeepAVariablesPartsInTheirMemory) {
  MirroredStrategy strategy(three, quick());
  const Scope inside(strategy);
  Variable v(row({1.F, 2.F}), {.name = "w"});
  const auto where = strategy.run([&] { return gpu::where(v.local_on_gpu().data()).device; });
  EXPECT_EQ(where.local(), (std::deque{2, 0, 1}));
  const std::string words =
      refusal([&] { strategy.update(v, [](Variable<float>& part) { part.local(); }); }, Code::usage);
  EXPECT_NE(words.find("local() of variable 'w', which is in a GPU's memory"), std::string::npos) << words;
  EXPECT_NE(words.find("use local_on_gpu()"), std::string::npos) << words;
  EXPECT_NE(refusal([&] { v.local_on_gpu(); }, Code::usage).find("no component of it"), std::string::npos);
  // By something that is on the GPU, such as a kernel: others see it.
  strategy.run([&](ReplicaContext& context) {
    const std::vector<float> mine{static_cast<float>(context.replica_id_in_sync_group()), 7.F};
    gpu::copy(FakeGpus::used(), reinterpret_cast<std::byte*>(v.local_on_gpu().data()),
              reinterpret_cast<const std::byte*>(mine.data()), 8);
  });
  EXPECT_EQ(v.parts()[2], row({2.F, 7.F}));
  EXPECT_NE(refusal([&] { v.check_sync(); }, Code::out_of_sync).find("element 0"), std::string::npos);
}

TEST_F(GpuStrategies, CombineTensorsWhoseTypeIsKnownAtRunTime) {
  const AnyTensor host = Tensor<float>({2, 2}, {1.F, 2.F, 3.F, 4.F});
  const AnyTensor there = host.copy_at({2});
  EXPECT_EQ(gpu::where(there.view().data).device, 2);
  EXPECT_EQ(there.rows(1, 1).to<float>(), Tensor<float>({1, 2}, {3.F, 4.F}));
  EXPECT_EQ(to_string(there), to_string(host));
  EXPECT_PRED2(holds, refusal([&] { (void)there.span<float>(); }, Code::usage), "use span_on_gpu()");
  EXPECT_PRED2(holds, refusal([&] { (void)host.span_on_gpu<float>(); }, Code::usage), "in the host's memory");
  DeviceVector<float> elements(std::vector{5.F, 6.F}, 1);
  const AnyTensor view = AnyTensor::view_of(elements, {2});
  view.assign(row({7.F, 8.F}));
  EXPECT_EQ(AnyTensor(std::move(elements), {2, 1}).to<float>(), Tensor<float>({2, 1}, {7.F, 8.F}));
  MirroredStrategy strategy(three, quick());
  const int before = nccl().operations();
  strategy.run([&](ReplicaContext& context) {
    AnyTensor mine = host.copy_at({context.local_id() == 0 ? 2 : context.local_id() - 1});
    context.all_reduce(mine, sum);
    EXPECT_EQ(mine.to<float>(), 3 * host.to<float>());
  });
  EXPECT_GT(nccl().operations(), before);
}

// Replicas on several GPUs share a variable in the host's memory. A single one has it on its GPU.
TEST_F(GpuStrategies, KeepCentralVariablesOnProcessorsUnlessThereIsOneGpu) {
  std::vector<std::string> lines;
  StrategyOptions options = quick();
  options.log = Log(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto device_of_a_variable = [](Strategy& strategy) {
    const Scope scope = strategy.scope();
    Variable v(row({1.F, 2.F}), {.aggregation = Aggregation::sum});
    strategy.run([&] { v.assign_add(row({1.F, 1.F})); });
    EXPECT_EQ(v.parts().size(), 1U);
    EXPECT_EQ(v.read()[0], 1 + static_cast<float>(strategy.num_replicas_in_sync()));
    EXPECT_EQ(strategy.extended().devices_of(v), strategy.extended().parameter_devices());
    return gpu::where(AnyVariable(v).part(0).data).device;
  };
  CentralStorageStrategy all(options);
  EXPECT_EQ(all.num_replicas_in_sync(), 4);
  EXPECT_EQ(device_of_a_variable(all), gpu::MemoryLocation::host);
  EXPECT_EQ(all.extended().parameter_devices(),
            std::vector<std::string>{"/job:localhost/replica:0/task:0/device:CPU:0"});
  CentralStorageStrategy one(std::vector<std::string>{"gpu:2"}, options);
  EXPECT_EQ(device_of_a_variable(one), 2);
  OneDeviceStrategy alone("gpu:3", quick());
  EXPECT_EQ(device_of_a_variable(alone), 3);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_PRED2(holds, lines[0],
               "with compute_devices = ['/job:localhost/replica:0/task:0/device:GPU:0', "
               "'/job:localhost/replica:0/task:0/device:GPU:1', '/job:localhost/replica:0/task:0/device:GPU:2', "
               "'/job:localhost/replica:0/task:0/device:GPU:3'], "
               "variable_device = '/job:localhost/replica:0/task:0/device:CPU:0'");
  EXPECT_PRED2(holds, lines[1], "variable_device = '/job:localhost/replica:0/task:0/device:GPU:2'");
}

TEST_F(GpuStrategies, WithoutMemoryForAVariableSayOnWhichGpu) {
  MirroredStrategy strategy(three, quick());
  const Scope inside(strategy);
  FakeGpus::fail_allocation_after(1);
  const std::string words = refusal([] { const Variable<float> v(row({1.F, 2.F})); }, Code::out_of_memory);
  EXPECT_NE(words.find("on GPU 0"), std::string::npos) << words;
  EXPECT_EQ(gpus().living(), 0U) << "the first part is not kept";
  EXPECT_EQ(Variable(3.F).read().item(), 3.F);
}

TEST_F(GpuStrategies, WithReplicasOnProcessorsHaveTheirVariablesThere) {
  MirroredStrategy strategy({"cpu:0", "gpu:3"}, quick());
  const Scope inside(strategy);
  Variable v(5.F);
  strategy.run([&](ReplicaContext& context) {
    if (context.local_id() == 0) {
      v.local()[0] = 6.F;
      EXPECT_NE(refusal([&] { v.local_on_gpu(); }, Code::usage).find("in the host's memory"), std::string::npos);
    } else {
      EXPECT_EQ(gpu::where(v.local_on_gpu().data()).device, 3);
    }
    DeviceVector<float> there(values_of(context.local_id(), 9), context.local_id());
    context.all_reduce(there, sum);
  });
  EXPECT_EQ(nccl().operations(), 0);
  EXPECT_EQ(v.parts()[0].item(), 6.F);
  EXPECT_EQ(v.parts()[1].item(), 5.F);
}

TEST_F(GpuStrategies, ReduceDeviceDataByNccl) {
  for (const Order order : {Order::reproducible, Order::fast}) {
    StrategyOptions options = quick();
    options.order = order;
    MirroredStrategy strategy(three, options);
    const int before = nccl().operations();
    const auto sums = strategy.run([&](ReplicaContext& context) {
      DeviceVector<float> mine(values_of(context.replica_id_in_sync_group(), 5000), FakeGpus::used());
      context.all_reduce(mine, sum);
      return on_host(mine);
    });
    EXPECT_GT(nccl().operations(), before);
    for (const auto& each : sums.local()) {
      if (order == Order::reproducible) {
        EXPECT_EQ(each, sums_on_processors(3, 5000));
      }
      EXPECT_EQ(each, sums[0]);
      EXPECT_NEAR(each[10], 1.F / 13 + 1.F / 14 + 1.F / 15, 1e-6F);
    }
  }
}

// What each kind of them makes of data that the host cannot look into.
TEST_F(GpuStrategies, CombineDeviceDataByEveryImplementation) {
  const std::vector<std::pair<std::shared_ptr<CrossDeviceOps>, bool>> kinds = {
      {std::make_shared<NcclAllReduce>(0), true},        {std::make_shared<NcclAllReduce>(1), true},
      {std::make_shared<NcclAllReduce>(2), true},        {std::make_shared<HierarchicalCopyAllReduce>(), false},
      {std::make_shared<ReductionToOneDevice>(), false}, {std::make_shared<ReductionToOneDevice>("gpu:1"), false}};
  for (const auto& [ops, by_nccl] : kinds) {
    for (const bool averages : {false, true}) {
      MirroredStrategy strategy(three, quick(ops));
      const int before = nccl().operations();
      const auto found = strategy.run([&](ReplicaContext& context) {
        const int me = context.replica_id_in_sync_group();
        std::tuple<DeviceVector<float>, DeviceVector<float>> mine(
            DeviceVector<float>(values_of(me, 100), FakeGpus::used()),
            DeviceVector<float>(values_of(me + 1, 7), FakeGpus::used()));
        if (averages)
          context.all_reduce(mine, avg);
        else
          context.all_reduce(mine, sum);
        return std::pair(on_host(std::get<0>(mine)), on_host(std::get<1>(mine)));
      });
      EXPECT_EQ(nccl().operations() > before, by_nccl) << ops->describe();
      const float by = averages ? 3.F : 1.F;
      for (int local = 0; local < 3; ++local) {
        const std::vector<float>& large = std::get<0>(found)[local];
        const std::vector<float>& small = std::get<1>(found)[local];
        for (std::size_t i = 0; i < large.size(); ++i)
          EXPECT_NEAR(large[i], sums_on_processors(3, 100)[i] / by, 1e-6F) << ops->describe();
        EXPECT_NEAR(small[2], (1.F / 6 + 1.F / 7 + 1.F / 8) / by, 1e-6F) << ops->describe();
      }
    }
  }
}

// The one thread that speaks for all may not wait for what it has to start itself.
TEST_F(GpuStrategies, OnProcessorsDoNotUseGpus) {
  MirroredStrategy strategy(2, quick());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(strategy.reduce("SUM", strategy.run([](ReplicaContext& context) { return context.local_id(); })), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9));
}

TEST_F(GpuStrategies, AFailureOfOneReplicaEndsAll) {
  MirroredStrategy strategy(three, quick());
  const std::string words = refusal(
      [&] {
        strategy.run([&](ReplicaContext& context) {
          DeviceVector<float> mine(5000, FakeGpus::used());
          if (context.local_id() == 1) FakeNccl::fail_after(0);
          context.all_reduce(mine, sum);
        });
      },
      Code::replica_failed);
  EXPECT_NE(words.find("NCCL"), std::string::npos) << words;
}

// An exception that has nothing to do with them is not held up.
TEST_F(GpuStrategies, ThatAnExceptionLeavesEndAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(
      {
        MirroredStrategy strategy(three, quick());
        strategy.run([&](ReplicaContext& context) {
          DeviceVector<float> mine(5000, FakeGpus::used());
          context.all_reduce(mine, sum);
        });
        throw std::runtime_error("something else");
      },
      std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9));
}

// Several replicas on processors are started by one thread, which could not let them ask each other. One of no device
// in particular, such as a rank's, may have its data on any.
TEST_F(GpuStrategies, MayUseNcclWhereEachIsStartedByItsOwnThread) {
  const auto may = [](Strategy&& strategy) {
    return strategy.run([](ReplicaContext& context) { return context.communicator().options().nccl; })[0];
  };
  EXPECT_TRUE(may(MirroredStrategy(1, quick())));
  EXPECT_TRUE(may(MirroredStrategy(three, quick())));
  EXPECT_FALSE(may(MirroredStrategy(2, quick())));
  EXPECT_FALSE(may(MirroredStrategy({"cpu:0", "gpu:0"}, quick())));
}

TEST_F(GpuStrategies, AddUpVirtualReplicasThere) {
  const auto in = [&](int virtual_replica) { return values_of(virtual_replica, 3000); };
  const auto sums = [&](Strategy& strategy) {
    return strategy.run([&](ReplicaContext& context) {
      auto mine =
          sum_of_virtual_replicas(context, 8, [&](int v) { return DeviceVector<float>(in(v), FakeGpus::used()); });
      context.all_reduce(mine, sum);
      return on_host(mine);
    })[0];
  };
  MirroredStrategy one({"gpu:0"}, quick());
  MirroredStrategy two({"gpu:0", "gpu:1"}, quick());
  EXPECT_EQ(sums(one), sums_on_processors(8, 3000));
  EXPECT_EQ(sums(two), sums_on_processors(8, 3000));
}

TEST_F(GpuStrategies, LogTheirTransport) {
  std::vector<std::string> lines;
  StrategyOptions options = quick();
  options.log = Log(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  options.communication.implementation = CommunicationImplementation::nccl;
  const MirroredStrategy wished(three, options);
  ASSERT_EQ(lines.size(), 1U);  // and no warning
  EXPECT_PRED2(holds, lines[0],
               "Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:GPU:2', ");
  EXPECT_PRED2(holds, wished.explain(), "replica 1 on /job:localhost/replica:0/task:0/device:GPU:0: GPU 0");
  EXPECT_NE(wished.explain().find("communication NCCL: all replicas are on GPUs"), std::string::npos);
  lines.clear();
  options.communication.implementation = CommunicationImplementation::automatic;
  options.cross_device_ops = std::make_shared<NcclAllReduce>();
  MirroredStrategy own(three, options);
  own.reduce("SUM", own.run([] { return 1; }));
  EXPECT_PRED2(holds, lines.back(), "NcclAllReduce in 1 pack: data in GPU memory by NCCL");
}

}  // namespace
}  // namespace lockstep::test
