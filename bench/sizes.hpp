// SPDX-License-Identifier: Apache-2.0
// Parses the words of a bench's command line: sizes, sweeps over sizes, and nccl-tests' names of collectives, types and
// operations. An unknown word is an Error with the right spelling, or nothing if the caller can list the known words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::bench {

// A guess: more sizes are a typing error.
inline constexpr std::size_t most_sizes = 10000;

// Parses "8", "4K", "1MiB", "1.5M", "64 MiB" (powers of 1024), and "1MB", "4KB" (powers of 1000). Returns bytes. Throws
// Error usage.
std::uint64_t parse_size(std::string_view words);
// Parses "8,4K,1M", and keeps the order. Throws Error usage.
std::vector<std::uint64_t> parse_size_list(std::string_view words);

// Describes a sweep like nccl-tests' -b -e -f -i: from `begin` to `end` inclusive. Each size is `factor` times the one
// before, or `step` bytes more; a factor takes precedence over a step.
struct Sweep {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::optional<std::uint64_t> factor = std::nullopt;
  std::uint64_t step = 1 << 20;
};
// Returns the sizes of the sweep. Throws Error usage if it is empty or has too many.
std::vector<std::uint64_t> sizes_of(const Sweep& sweep);

// Return Lockstep's name for "allreduce", "all_reduce_perf", "sendrecv"; for "float", "half"; for "mulsum". They return
// nothing for unknown names. Types of 8-bit floats exist only elsewhere, and are an Error.
std::optional<std::string_view> our_collective(std::string_view name);
std::optional<std::string_view> our_type(std::string_view name);
std::optional<std::string_view> our_op(std::string_view name);

}  // namespace lockstep::bench
