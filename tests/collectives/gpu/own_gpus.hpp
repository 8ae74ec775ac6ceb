// SPDX-License-Identifier: Apache-2.0
// Tests whose members have a GPU each, and NCCL between them: both of the tests' own making.
#pragma once

#include <numeric>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/nccl/fake_nccl.hpp"

namespace lockstep::test {

class OwnGpus : public testing::Test {
 protected:
  FakeGpus& gpus() const { return static_cast<FakeGpus&>(gpus_.backend()); }
  FakeNccl& nccl() const { return static_cast<FakeNccl&>(library_.library()); }
  void TearDown() override {
    EXPECT_EQ(nccl().living(), 0);
    EXPECT_EQ(nccl().registered(), 0);
    EXPECT_EQ(nccl().mistakes(), 0);
    EXPECT_EQ(gpus().living(), 0U);
  }

  using Stream = OwnStream;

 private:
  gpu::BackendOverride gpus_{std::make_unique<FakeGpus>(8)};
  nccl::NcclOverride library_{std::make_unique<FakeNccl>(gpus())};
};

template <class T>
std::vector<T> on_host(const DeviceVector<T>& there) {
  std::vector<T> here(there.size());
  there.copy_to(here);
  return here;
}

inline std::vector<int> counting(std::size_t count, int first) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

inline constexpr std::size_t count = 5000;

// Of counting(count, rank) of so many members.
inline std::vector<int> sum_of(int members) {
  std::vector<int> all = counting(count, 0);
  for (int& each : all) each = members * each + members * (members - 1) / 2;
  return all;
}

}  // namespace lockstep::test
