// SPDX-License-Identifier: Apache-2.0
// Ranks with replicas on GPUs of the tests' own making, which each rank numbers for itself.
#include <gtest/gtest.h>

#include "runtime/gradient_reducer.hpp"
#include "runtime/variable.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class GpuWorkers : public testing::Test {
 protected:
  gpu::BackendOverride gpus_{std::make_unique<FakeGpus>(3)};
};
class GpuWorkersTwo : public NeedsRanks<2> {
 protected:
  gpu::BackendOverride gpus_{std::make_unique<FakeGpus>(3)};
};

// The sum of what replicas have on their GPUs and of what is in their variables there, in the place of each replica.
void expect_sums(MultiWorkerMirroredStrategy& strategy) {
  const int n = strategy.num_replicas_in_sync();
  MirroredStrategy threads(n, quiet());
  const auto expected = threads.run([](ReplicaContext& context) {
    std::vector<float> mine(20'000);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value_of(context.replica_id_in_sync_group(), i);
    context.all_reduce(mine, sum);
    return mine;
  });
  const Scope inside(strategy);
  Variable<float> v([&] { return row({static_cast<float>(world().rank() + 1), 2.F}); });
  const auto sums = strategy.run([&](ReplicaContext& context) {
    std::vector<float> mine(20'000);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value_of(context.replica_id_in_sync_group(), i);
    DeviceVector<float> there(mine, FakeGpus::used());
    context.all_reduce(there, sum);
    there.copy_to(mine);
    context.all_reduce(v.local_on_gpu(), sum);
    return mine;
  });
  for (const auto& each : sums.local()) EXPECT_EQ(each, expected[0]);
  EXPECT_EQ(v.read(), row({static_cast<float>(n), static_cast<float>(2 * n)}));  // rank 0 began with 1
  v.check_sync();
}

TEST_F(GpuWorkers, UseTheDevicesOfTheirRanks) {
  const std::string name = text("gpu:", world().rank() % 3);
  MultiWorkerMirroredStrategy strategy(session(), std::vector{name}, quiet());
  EXPECT_NE(strategy.devices().front().find(text("device:GPU:", world().rank() % 3)), std::string::npos);
  expect_sums(strategy);
}

TEST_F(GpuWorkers, MayHaveDifferentNumbersOfThem) {
  std::vector<std::string> names{"gpu:2"};
  if (world().rank() == 0) names = {"gpu:0", "gpu:1"};
  MultiWorkerMirroredStrategy strategy(session(), names, quiet());
  EXPECT_EQ(strategy.num_replicas_in_sync(), world().size() + 1);
  expect_sums(strategy);
}

TEST_F(GpuWorkersTwo, OfWhichOneHasNoMemoryMakeNoVariableOnAny) {
  MultiWorkerMirroredStrategy strategy(session(), std::vector<std::string>{"gpu:1"}, quiet());
  const Scope inside(strategy);
  const bool is_short = world().rank() == 1;
  if (is_short) FakeGpus::fail_allocation_after(0);
  const std::string words =
      refusal([] { const Variable<float> v(1.F); }, is_short ? Code::out_of_memory : Code::peer_failed);
  EXPECT_NE(words.find(is_short ? "on GPU 1" : "replica 1 could not make its variable"), std::string::npos) << words;
  EXPECT_EQ(Variable(3.F).read().item(), 3.F);
}

TEST_F(GpuWorkersTwo, ThatOneRankDoesNotSeeAreAnErrorOnAll) {
  const std::vector<std::string> names{world().rank() == 1 ? "gpu:3" : "gpu:0"};
  const std::string words = refusal([&] { MultiWorkerMirroredStrategy(session(), names, quiet()); }, Code::usage);
  EXPECT_NE(words.find("rank 1: "), std::string::npos) << words;
  EXPECT_NE(words.find("device:GPU:3"), std::string::npos) << words;
  const MultiWorkerMirroredStrategy again(session(), std::vector<std::string>{"gpu:0"}, quiet());
}

}  // namespace
}  // namespace lockstep::test
