// SPDX-License-Identifier: Apache-2.0
// The strategy whose replicas are ranks: what the other strategies do too, and the same bits as theirs.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/extended.hpp"
#include "runtime/strategy.hpp"
#include "tests/runtime/ring_sums.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/duration.hpp"

namespace lockstep::test {
namespace {

using MultiWorkerTwo = NeedsRanks<2>;

TEST(Rings, AreTakenWhereTheyAreWished) {
  StrategyOptions options = quiet();
  options.order = Order::fast;
  options.communication.implementation = CommunicationImplementation::ring;
  for (const int replicas : {1, 2}) {
    MultiWorkerMirroredStrategy strategy(session(), replicas, options);
    const int n = strategy.num_replicas_in_sync();
    if (n > 1) {
      EXPECT_NE(strategy.explain().find("all_reduce of 64 KiB: ring, forced"), std::string::npos);
    }
    const auto sums = strategy.run([](ReplicaContext& context) {
      std::vector<float> value = ring_values(context.replica_id_in_sync_group(), 1680);
      context.all_reduce(value, sum);
      return value;
    });
    for (const auto& each : sums.local()) EXPECT_EQ(each, ring_sums(n, 1680));
  }
}

TEST_F(MultiWorkerTwo, ACallEndsInItsTimeAndNamesTheRankThatIsLate) {
  for (const int replicas : {1, 2}) {
    MultiWorkerMirroredStrategy strategy(session(), replicas, quiet());
    const int last = strategy.num_replicas_in_sync() - 1;
    const auto late = [&](Duration timeout, std::chrono::milliseconds by) {
      strategy.run([&](ReplicaContext& context) {
        if (context.replica_id_in_sync_group() == last) std::this_thread::sleep_for(by);
        std::vector<float> value(3);
        context.all_reduce(value, sum, {.timeout = timeout});
        context.all_reduce(value, sum);  // whoever came last may find all there; that the others left, it hears here
      });
    };
    late(std::chrono::seconds(20), std::chrono::milliseconds(50));
    const std::string words =
        refusal([&] { late(std::chrono::milliseconds(200), std::chrono::seconds(2)); }, Code::replica_failed);
    EXPECT_NE(words.find("the program has set this call's limit"), std::string::npos) << words;
    EXPECT_NE(words.find(text(last, " (process")), std::string::npos) << words;  // at the end of the missing ones
    EXPECT_NE(words.find("make a new strategy"), std::string::npos) << "a replica that does not come may never come";
  }
}

// The last rank does not come at all, until the others have been told so.
TEST_F(MultiWorkerTwo, BatchesAndSlicesEndInTheirTime) {
  const IndexedSlices<float> slices(Tensor<float>({1, 2}, {4.F, 6.F}), {1}, {5, 2});
  const CommunicationOptions second = {.timeout = std::chrono::seconds(1)};
  const std::function<void(Strategy&)> calls[] = {
      [&](Strategy& strategy) {
        const PerReplica<Tensor<float>> one{1.F};
        strategy.extended().batch_reduce_to<float>("SUM", {{one, {}}, {one, {}}}, second);
      },
      [&](Strategy& strategy) {
        strategy.run([&](ReplicaContext& context) { (void)context.all_reduce(slices, sum, second); });
      },
      [&](Strategy& strategy) {
        strategy.run([&](ReplicaContext& context) {
          std::vector batch{slices, slices};
          context.all_reduce(batch, sum, second);
        });
      },
  };
  for (const auto& call : calls) {
    MultiWorkerMirroredStrategy strategy(session(), quiet());
    if (world().rank() + 1 < world().size()) {
      const auto begin = std::chrono::steady_clock::now();
      const std::string words =
          refusal([&] { call(strategy); }, {Code::stall, Code::peer_failed, Code::replica_failed});
      EXPECT_NE(words.find("the program has set this call's limit"), std::string::npos) << words;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    }
    session().exchange().barrier("the others have been told");
  }
}

}  // namespace
}  // namespace lockstep::test
