// SPDX-License-Identifier: Apache-2.0
// The kernels of every set of vector instructions that this processor has, side by side.
#pragma once

#include <gtest/gtest.h>
#include "collectives/kernels/vectors.hpp"
// Below vectors.hpp, which chooses the targets.
#include <hwy/targets.h>

#include <cstdint>
#include <vector>

#include "collectives/kernels/streaming.hpp"
#include "collectives/kernels/table.hpp"

namespace lockstep::test {

inline std::vector<KernelTable> make_tables() {
  std::vector<KernelTable> made;
  const auto targets = hwy::SupportedAndGeneratedTargets();
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    hwy::SetSupportedTargetsForTest(*target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    made.push_back(make_kernel_table());
    EXPECT_EQ(made.back().target, hwy::TargetName(*target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return made;
}

// One for each target. The last is what the library takes by itself.
inline const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> made = make_tables();
  return made;
}

// While it lives, results of any size are streamed, or of none.
class Streaming {
 public:
  explicit Streaming(bool always) : before_(streaming_size().exchange(always ? 0 : SIZE_MAX)) {}
  ~Streaming() { streaming_size() = before_; }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

 private:
  std::size_t before_;
};

// All but the user's own.
inline std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int t = 0; t < data_type_count; ++t) {
    if (static_cast<DataType>(t) != DataType::opaque) types.push_back(static_cast<DataType>(t));
  }
  return types;
}

}  // namespace lockstep::test
