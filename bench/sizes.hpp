// SPDX-License-Identifier: Apache-2.0
// What people type on the command line of a bench: sizes, sweeps over sizes, and the names that nccl-tests
// gives to collectives, types and operations. All pure; what is not understood is an Error that says how
// to write it, or nothing where the caller can name what there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::bench {

inline constexpr std::size_t most_sizes = 10000;

// "8", "4K", "1MiB", "1.5M", "64 MiB": powers of 1024; "1MB", "4KB": powers of 1000.
std::uint64_t parse_size(std::string_view words);
// "8,4K,1M", in the order in which they are written.
std::vector<std::uint64_t> parse_size_list(std::string_view words);

// As nccl-tests' -b -e -f -i: from `begin` up to `end` inclusive, each `factor` times the one before, or
// `step` bytes more; a factor goes before a step.
struct Sweep {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::optional<std::uint64_t> factor = std::nullopt;
  std::uint64_t step = 1 << 20;
};
std::vector<std::uint64_t> sizes_of(const Sweep& sweep);

// Our name for "allreduce", "all_reduce_perf", "sendrecv"; for "float", "half"; for "mulsum". Nothing for
// what does not exist; types of 8-bit floats exist elsewhere only and are an Error.
std::optional<std::string_view> our_collective(std::string_view name);
std::optional<std::string_view> our_type(std::string_view name);
std::optional<std::string_view> our_op(std::string_view name);

}  // namespace lockstep::bench
