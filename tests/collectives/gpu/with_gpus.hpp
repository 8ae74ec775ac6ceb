// SPDX-License-Identifier: Apache-2.0
// A machine with GPUs of the tests' own making, and copies of what is in their memory.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"

namespace lockstep::test {

// What is left on them fails the test.
template <int number>
class WithGpus : public testing::Test {
 protected:
  FakeGpus& gpus() const { return static_cast<FakeGpus&>(instead_.backend()); }
  void TearDown() override { EXPECT_EQ(gpus().living(), 0U); }

 private:
  gpu::BackendOverride instead_{std::make_unique<FakeGpus>(number)};
};

inline std::vector<int> counting(std::size_t count, int first) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

template <class T>
std::vector<T> on_host(const DeviceVector<T>& there) {
  std::vector<T> here(there.size());
  there.copy_to(here);
  return here;
}

}  // namespace lockstep::test
