// SPDX-License-Identifier: Apache-2.0
// What is asked for of GPUs, held against what was measured on one: a row for each number, with a verdict. What could
// not be measured is no failure, and no success: it says why.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

enum class Met : std::uint8_t { met, missed, not_measurable };

struct Number {
  std::string what;
  std::string asked;  // "at least 0.9", "at most 3 us"
  std::optional<double> value;
  Met met = Met::not_measurable;
  std::string why;  // of what is not measurable, or missed otherwise than by the number
  bool operator==(const Number&) const = default;
};

// From files by their names, as far as they are there: gpu-probe.json, which is the probe's, one.json, of a rank that
// has a GPU for itself, and shared-2.json, shared-4.json and shared-8.json, of so many on one GPU, and
// shared-nccl-2.json ... of the same beside NCCL, which are of `lockstep bench all_reduce --device gpu`. A file that is
// none of these is a row that says so.
std::vector<Number> gpu_numbers(const std::map<std::string, std::string>& files);

std::string numbers_as_json(const std::vector<Number>& numbers);
std::string numbers_as_text(const std::vector<Number>& numbers);

}  // namespace lockstep::bench
