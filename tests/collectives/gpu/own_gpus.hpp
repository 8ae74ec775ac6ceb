// SPDX-License-Identifier: Apache-2.0
// Tests whose members have a GPU each, and NCCL between them: both of the tests' own making.
#pragma once

#include <functional>

#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/collectives/nccl/fake_nccl.hpp"

namespace lockstep::test {

class OwnGpus : public WithGpus<8> {
 protected:
  FakeNccl& nccl() const { return static_cast<FakeNccl&>(library_.library()); }
  void TearDown() override {
    EXPECT_EQ(nccl().living(), 0);
    WithGpus<8>::TearDown();
  }

  using Stream = OwnStream;

 private:
  nccl::NcclOverride library_{std::make_unique<FakeNccl>(gpus())};
};

inline constexpr std::size_t count = 5000;

// Of counting(count, rank) of so many members.
inline std::vector<int> sum_of(int members) {
  std::vector<int> all = counting(count, 0);
  for (int& each : all) each = members * each + members * (members - 1) / 2;
  return all;
}

// Rank 0 starts it while the others have not come, so nobody is asked; `meanwhile` it is not over.
inline void expect_started_alone(
    Communicator& world, PreparedCall& plan, const std::function<void()>& meanwhile = [] {}) {
  if (world.rank() != 0) {
    world.barrier();
    plan.run();
    return;
  }
  Request request = plan.start();
  meanwhile();
  EXPECT_FALSE(request.test());
  world.barrier();
  request.wait();
}

}  // namespace lockstep::test
