// SPDX-License-Identifier: Apache-2.0
// Four GPUs of the tests' own making, while it lives, perhaps with an NCCL. What is left on them fails the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/nccl/fake_nccl.hpp"

namespace lockstep::test {

class OwnMachine {
 public:
  explicit OwnMachine(bool has_nccl) {
    if (has_nccl) nccl_.emplace(std::make_unique<FakeNccl>(gpus()));
  }
  ~OwnMachine() {
    EXPECT_EQ(gpus().living(), 0U);
    if (nccl_) {
      EXPECT_EQ(nccl().living(), 0);
    }
  }
  OwnMachine(const OwnMachine&) = delete;
  OwnMachine& operator=(const OwnMachine&) = delete;

  FakeGpus& gpus() const { return static_cast<FakeGpus&>(gpus_.backend()); }
  FakeNccl& nccl() const { return static_cast<FakeNccl&>(nccl_->library()); }

 private:
  gpu::BackendOverride gpus_{std::make_unique<FakeGpus>(4)};
  std::optional<nccl::NcclOverride> nccl_;
};

}  // namespace lockstep::test
