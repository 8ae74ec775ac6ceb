// SPDX-License-Identifier: Apache-2.0
// The GPUs that this process sees. One of device_cuda.cpp and device_none.cpp is built; the rest of the
// program is the same with either, and with a build for CUDA on a machine without a driver.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct VisibleGpu {
  std::string name;
  std::string id;   // "GPU-3f2b...": the serial that no two GPUs share
  std::string bus;  // "0000:3b:00.0"
  std::uint64_t memory_bytes = 0;
  std::string state;  // which of these it is in, one after the other; empty: none
  static constexpr std::string_view prohibited = "prohibited ";
  static constexpr std::string_view exclusive = "exclusive ";
  static constexpr std::string_view slice = "slice ";
  static constexpr std::string_view no_ecc = "no-ecc ";
  // Whether it reaches another one's memory without the host, by that one's serial; of those that the driver was asked
  // about and answered. By NVLink or by PCIe: that CUDA does not tell.
  std::map<std::string, bool> reaches = {};
  bool operator==(const VisibleGpu&) const = default;
};

struct VisibleGpus {
  bool built = false;       // this build can use CUDA
  int driver_version = 0;   // 12040 is 12.4; 0: no driver
  int runtime_version = 0;  // what this build was made with; 0: none
  std::string why_none;     // why there is no GPU, as a sentence; empty when there are some
  std::vector<VisibleGpu> gpus;
};

VisibleGpus read_visible_gpus();

// "13.0", or "not built in".
std::string cuda_version();
std::string nccl_version();

}  // namespace lockstep
