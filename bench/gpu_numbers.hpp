// SPDX-License-Identifier: Apache-2.0
// What is asked for of GPUs, held against what was measured on one: a row for each number, with a verdict. What could
// not be measured is no failure, and no success: it says why.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

enum class TargetStatus : std::uint8_t { aim, met, missed, not_measurable };

// What must be, and what is aimed at: at least, or of a cost at most, in us.
struct Target {
  double must;
  double aim;
  bool is_cost = false;
  bool operator==(const Target&) const = default;
};

struct GpuNumber {
  std::string what;
  Target target{};
  std::optional<double> value;
  TargetStatus status = TargetStatus::not_measurable;
  std::string why;  // of what is not measurable, or missed otherwise than by the number
  bool operator==(const GpuNumber&) const = default;
};

// From files by their names, as far as they are there: gpu-probe.json, which is the probe's, and of `lockstep bench
// all_reduce --device gpu` one.json, of a rank that has a GPU for itself, and of N ranks on one GPU, 2, 4 and 8,
// shared-N.json, beside the host's MPI, shared-nccl-N.json, beside NCCL, and the same under MPS, shared-mps-N.json and
// shared-nccl-mps-N.json. no-mps.txt says why the latter are not there. A file that is none of these is a row that says
// so.
std::vector<GpuNumber> gpu_numbers(const std::map<std::string, std::string>& files);

// The names of all that gpu_numbers looks at.
std::vector<std::string> files_of_gpu_numbers();

// On what they were measured, as those files say it.
std::vector<Fact> machine_of_gpu_numbers(const std::map<std::string, std::string>& files);

std::string numbers_as_json(const std::vector<GpuNumber>& numbers, const std::vector<Fact>& machine);
std::string numbers_as_text(const std::vector<GpuNumber>& numbers);

}  // namespace lockstep::bench
