// SPDX-License-Identifier: Apache-2.0
// The GPUs that this process sees. One of device_cuda.cpp and device_none.cpp is built. The rest of the program is the
// same with either, and with a build for CUDA on a machine without a driver.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Describes one GPU as the driver shows it.
struct VisibleGpu {
  std::string name;
  std::string id;   // "GPU-3f2b...": a serial that no two GPUs share
  std::string bus;  // "0000:3b:00.0"
  std::uint64_t memory_bytes = 0;
  std::string state;  // those of the words below that are true of it, one after the other; empty: none
  static constexpr std::string_view prohibited = "prohibited ";
  static constexpr std::string_view exclusive = "exclusive ";
  static constexpr std::string_view slice = "slice ";
  static constexpr std::string_view no_ecc = "no-ecc ";
  // Tells for each other GPU, by its serial, if this one reaches its memory without the host. It has those that the
  // driver was asked about and answered. CUDA does not tell NVLink from PCIe.
  std::map<std::string, bool> reaches = {};
  bool operator==(const VisibleGpu&) const = default;
};

// Holds all GPUs of this process, or the reason for having none.
struct VisibleGpus {
  bool built = false;       // true if this build can use CUDA
  int driver_version = 0;   // 12040 is 12.4; 0: no driver
  int runtime_version = 0;  // the CUDA that this build was made with; 0: none
  std::string why_none;     // a sentence; empty if there are some
  std::vector<VisibleGpu> gpus;
};

// Reads the GPUs without making a context. Never throws for a missing driver; `why_none` says so. Throws Error usage in
// a program with raised rights, if a variable could load code.
VisibleGpus read_visible_gpus();

// Return "13.0", or "not built in".
std::string cuda_version();
std::string nccl_version();

}  // namespace lockstep
