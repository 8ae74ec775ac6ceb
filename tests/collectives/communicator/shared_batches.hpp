// SPDX-License-Identifier: Apache-2.0
// Tensors of members that share a GPU, and what a call for each of them, on the host, makes of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/collectives/communicator/gpu_level_cases.hpp"
#include "tests/collectives/engine/gate.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {

class SharedBatches : public OwnGpus {
 protected:
  void SetUp() override {
    if (!node_memory()) GTEST_SKIP() << lacks("needs members who share memory");
  }
};

// Of one member, each of another length; on a GPU, or (-1) on the host.
class Tensors {
 public:
  Tensors(int number, int rank, int device) : rank_(rank) {
    for (int i = 0; i < number; ++i) {
      here_.push_back(given(i));
      if (device >= 0) there_.emplace_back(given(i), device);
    }
  }

  // Of every member by its own factors, or the mean.
  void add_to(Batch& batch, bool is_mean) {
    for (int i = 0; i < static_cast<int>(here_.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::span<float> data = there_.empty() ? std::span(here_[at]) : there_[at].span();
      if (is_mean)
        batch.all_reduce(data, avg);
      else
        batch.all_reduce(data, op_of(i));
    }
  }
  void fill() {
    for (int i = 0; i < static_cast<int>(here_.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::ranges::copy(given(i), here_[at].begin());
      if (!there_.empty()) there_[at].copy_from(here_[at]);
    }
  }
  std::vector<std::vector<float>> found() const {
    std::vector<std::vector<float>> all = here_;
    for (std::size_t i = 0; i < there_.size(); ++i) all[i] = on_host(there_[i]);
    return all;
  }
  // As a call for each has it, on the host.
  std::vector<std::vector<float>> right(Communicator& world, bool is_mean) const {
    std::vector<std::vector<float>> all;
    for (int i = 0; i < static_cast<int>(here_.size()); ++i) {
      auto& data = all.emplace_back(given(i));
      if (is_mean)
        world.all_reduce(data, avg);
      else
        world.all_reduce(data, op_of(i));
    }
    return all;
  }

 private:
  std::vector<float> given(int i) const {
    std::vector<float> all(static_cast<std::size_t>(i * 7 % 40));
    for (std::size_t at = 0; at < all.size(); ++at)
      all[at] = 100 * std::sin(static_cast<float>((at + static_cast<std::size_t>(i)) * 7 + 1) +
                               static_cast<float>(rank_) * 0.9F);
    return all;
  }
  PremulSum op_of(int i) const { return premul_sum(0.3 * i - rank_); }

  int rank_;
  std::vector<std::vector<float>> here_;
  std::vector<DeviceVector<float>> there_;
};

}  // namespace lockstep::test
