// SPDX-License-Identifier: Apache-2.0
// Divides gradients into buckets by their bytes. GradientReducer and `lockstep bench gradients` share this rule.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Are the bytes at which buckets close by default, and the first one: the defaults of PyTorch's
// DistributedDataParallel.
inline constexpr std::size_t default_bucket_bytes = std::size_t{25} << 20U;
inline constexpr std::size_t default_first_bucket_bytes = std::size_t{1} << 20U;

// Divides gradients, by their numbers, into buckets: in the given order, each bucket up to the gradient that fills it.
// A gradient that fills a bucket by itself shares it with no other: then it needs no copy. `bytes` is indexed by
// gradient.
inline std::vector<std::vector<int>> divide_into_buckets(std::span<const std::size_t> bytes, std::span<const int> order,
                                                         std::size_t bucket_bytes, std::size_t first_bucket_bytes) {
  std::vector<std::vector<int>> buckets;
  std::size_t so_far = 0;
  bool is_full = true;
  for (const int which : order) {
    const bool fills_alone = bytes[static_cast<std::size_t>(which)] >= bucket_bytes;
    if (std::exchange(is_full, false) || fills_alone) {
      buckets.emplace_back();
      so_far = 0;
    }
    buckets.back().push_back(which);
    so_far += bytes[static_cast<std::size_t>(which)];
    is_full = fills_alone || so_far >= (buckets.size() == 1 ? first_bucket_bytes : bucket_bytes);
  }
  return buckets;
}

}  // namespace lockstep::detail
