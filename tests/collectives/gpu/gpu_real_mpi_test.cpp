// SPDX-License-Identifier: Apache-2.0
// Processes that share a real GPU: calls in streams that are held back, the first one of a communicator too, and what
// the packing of many tensors takes there. LOCKSTEP_NODE_MEMORY=0 takes the time of going by the host.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <numeric>

#include "collectives/communicator/batch.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "tests/collectives/gpu/real_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {
namespace {

class RealProcesses : public NeedsRanks<2> {
 protected:
  void SetUp() override {
    NeedsRanks<2>::SetUp();
    if (IsSkipped()) return;
    if (gpu::backend() == nullptr) GTEST_SKIP() << lacks(text("needs a GPU; ", gpu::why_none()));
    use_gpu();
  }
  // Anew: nothing was mapped or measured for it.
  static Communicator members() {
    std::vector<int> ranks(static_cast<std::size_t>(world().size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    CommunicatorOptions options;
    options.node_memory = session().settings().node_memory();
    return {world(), session().shared_topology(), ranks, transport_of(session()), options};
  }
};

// Where mapping, measuring, or making an event waited for all that is on the GPU, the first call would never return.
TEST_F(RealProcesses, KeepTheOrderOfStreamsFromTheFirstCallOn) {
  for (const Collective collective : moved_or_reduced) {
    for (const std::size_t block : {std::size_t{7}, std::size_t{50'000}}) {
      Communicator all = members();
      for (const int late : {0, all.size() - 1}) expect_order_by_cuda(all, collective, late, block);
    }
  }
}

// As many as ResNet-50 has gradients, small ones and large ones.
TEST_F(RealProcesses, ReduceManyTensorsAsOne) {
  Communicator all = members();
  std::deque<DeviceVector<float>> tensors;
  std::size_t bytes = 0;
  for (int i = 0; i < 161; ++i) {
    const std::size_t size =
        i % 3 == 0 ? 350'000 + 700 * static_cast<std::size_t>(i) : 64U << static_cast<unsigned>(i % 5);
    tensors.emplace_back(std::vector<float>(size, 1.F), 0);
    bytes += size * sizeof(float);
  }
  Batch batch(all);
  for (DeviceVector<float>& each : tensors) batch.all_reduce(each, max);
  std::vector<double> ms;
  for (int i = 0; i < 24; ++i) {
    all.barrier();
    const auto begin = std::chrono::steady_clock::now();
    batch.run();
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  for (const DeviceVector<float>& each : tensors) {
    std::vector<float> found(each.size());
    each.copy_to(found);
    EXPECT_EQ(found, std::vector<float>(each.size(), 1.F));
  }
  const double first = ms[0];
  ms.erase(ms.begin(), ms.begin() + 4);
  std::ranges::sort(ms);
  if (all.rank() == 0)
    std::cout << text("161 tensors of ", bytes >> 20U, " MiB together, ", all.size(), " processes: ", ms[10],
                      " ms, from ", ms[1], " to ", ms[18], "; the first one ", first, '\n');
}

}  // namespace
}  // namespace lockstep::test
