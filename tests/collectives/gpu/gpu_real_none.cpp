// SPDX-License-Identifier: Apache-2.0
// In place of gpu_real_test.cpp, in a build without CUDA.
#include <gtest/gtest.h>

#include "collectives/gpu/device_backend.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

TEST(RealGpu, IsAskedNothing) {
  ASSERT_EQ(gpu::backend(), nullptr);
  GTEST_SKIP() << lacks("needs a build with CUDA; " + gpu::why_none());
}

}  // namespace
}  // namespace lockstep::test
