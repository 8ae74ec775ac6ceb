// SPDX-License-Identifier: Apache-2.0
// Compares the targets for GPUs with the numbers that were measured on one. Each number is a row with a verdict. A
// number that could not be measured is neither a failure nor a success; its row has the reason.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

enum class TargetStatus : std::uint8_t { aim, met, missed, not_measurable };

// Holds a limit and an aim. They are lower bounds; for a cost, in us, they are upper bounds.
struct Target {
  double must;
  double aim;
  bool is_cost = false;
  bool operator==(const Target&) const = default;
};

// Holds one row: the target, the measured value and the status.
struct GpuNumber {
  std::string what;
  Target target{};
  std::optional<double> value;
  TargetStatus status = TargetStatus::not_measurable;
  std::string why;  // the reason, if it is not measurable, or missed for another reason than the value
  bool operator==(const GpuNumber&) const = default;
};

// Reads the numbers from files by their names; a missing file is no error. A file with other content becomes a row with
// an error. The probe writes gpu-probe.json. All others are files of `lockstep bench all_reduce --device gpu`.
//
//   A rank with a GPU for itself writes one.json.
//   N ranks (2, 4 or 8) on one GPU, compared with MPI on the host, write shared-N.json.
//   N ranks, compared with NCCL, write shared-nccl-N.json.
//   Under MPS the names are shared-mps-N.json and shared-nccl-mps-N.json.
//   If there are no files under MPS, no-mps.txt has the reason.
std::vector<GpuNumber> gpu_numbers(const std::map<std::string, std::string>& files);

// Returns the names of all files that gpu_numbers() reads.
std::vector<std::string> files_of_gpu_numbers();

// Returns the machine of the measurements, as the files describe it.
std::vector<Fact> machine_of_gpu_numbers(const std::map<std::string, std::string>& files);

std::string numbers_as_json(const std::vector<GpuNumber>& numbers, const std::vector<Fact>& machine);
std::string numbers_as_text(const std::vector<GpuNumber>& numbers);

}  // namespace lockstep::bench
