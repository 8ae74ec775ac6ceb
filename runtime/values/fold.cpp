// SPDX-License-Identifier: Apache-2.0
// Orders the axes of a reduction.
#include "runtime/values/fold.hpp"

#include <algorithm>
#include <functional>

namespace lockstep::detail {

std::vector<int> folded_axes(const TensorShape& shape, const std::vector<int>& axes) {
  std::vector<int> all;
  all.reserve(axes.size());
  for (const int axis : axes) all.push_back(shape.find(axis));
  std::sort(all.begin(), all.end(), std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace lockstep::detail
