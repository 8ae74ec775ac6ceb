// SPDX-License-Identifier: Apache-2.0
// Gradients and buckets as the tests of reducers write them.
#pragma once

#include <vector>

#include "runtime/gradient_reducer.hpp"

namespace lockstep::test {

using Buckets = std::vector<std::vector<int>>;

// Float gradients "layer0", "layer1", ... with these counts.
inline std::vector<GradientSpec> floats_of(const std::vector<std::size_t>& counts) {
  std::vector<GradientSpec> all;
  for (const std::size_t count : counts) all.push_back({text("layer", all.size()), DataType::f32, count});
  return all;
}

}  // namespace lockstep::test
