// SPDX-License-Identifier: Apache-2.0
// Replicas on GPUs of the tests' own, and what is the same of replicas on processors.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/runtime/own_machine.hpp"
#include "tests/runtime/quick.hpp"

namespace lockstep::test {

inline const std::vector<std::string> three{"gpu:2", "gpu:0", "gpu:1"};

class GpuStrategies : public testing::Test {
 protected:
  FakeGpus& gpus() const { return machine_.gpus(); }
  FakeNccl& nccl() const { return machine_.nccl(); }

 private:
  OwnMachine machine_{true};
};

inline std::vector<float> values_of(int replica, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = 1.F / static_cast<float>(3 + static_cast<std::size_t>(replica) + i);
  return all;
}

// Of so many replicas on processors, in the order whose bits are the same everywhere.
inline std::vector<float> sums_on_processors(int replicas, std::size_t count) {
  MirroredStrategy strategy(replicas, quick());
  const auto all = strategy.run([&](ReplicaContext& context) {
    std::vector<float> mine = values_of(context.replica_id_in_sync_group(), count);
    context.all_reduce(mine, sum);
    return mine;
  });
  return all[0];
}

}  // namespace lockstep::test
