// SPDX-License-Identifier: Apache-2.0
// Reads the GPUs as the CUDA runtime shows them. It makes no context and takes no memory on them.
#include "topology/machine/device.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>

#include "topology/base/environment.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Returns the UUID in nvidia-smi's spelling.
std::string spell(const cudaUUID_t& uuid) {
  std::string all = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    std::array<char, 4> two{};
    std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) all += '-';
    all += two.data();
  }
  return all;
}

std::string spell_bus(const cudaDeviceProp& properties) {
  std::array<char, 32> bus{};
  std::snprintf(bus.data(), bus.size(), "%04x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
  return bus.data();
}

std::string state_of(int device, const cudaDeviceProp& properties) {
  int mode = cudaComputeModeDefault;
  int ecc = 1;
  cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
  cudaDeviceGetAttribute(&ecc, cudaDevAttrEccEnabled, device);
  std::string state;
  if (mode == cudaComputeModeProhibited) state += VisibleGpu::prohibited;
  if (mode == cudaComputeModeExclusiveProcess) state += VisibleGpu::exclusive;
  if (std::string_view(properties.name).find(" MIG ") != std::string_view::npos) state += VisibleGpu::slice;
  if (ecc == 0) state += VisibleGpu::no_ecc;
  return state;
}

// Asks about all pairs, and keeps those that the driver answers.
void ask_who_reaches_whom(std::vector<VisibleGpu>& gpus, const std::vector<int>& devices) {
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = 0; b < gpus.size(); ++b) {
      int reaches = 0;
      if (a != b &&
          cudaDeviceGetP2PAttribute(&reaches, cudaDevP2PAttrAccessSupported, devices[a], devices[b]) == cudaSuccess)
        gpus[a].reaches[gpus[b].id] = reaches != 0;
    }
  }
}

std::string spell_version(int version) { return text(version / 1000, ".", version % 1000 / 10); }

std::string why(cudaError_t error, const VisibleGpus& devices) {
  if (devices.driver_version == 0) return "no CUDA driver on this machine";
  if (error == cudaErrorInsufficientDriver) {
    return text("the driver knows CUDA ", spell_version(devices.driver_version), " but this build needs ",
                spell_version(devices.runtime_version));
  }
  return cudaGetErrorString(error);
}

}  // namespace

VisibleGpus read_visible_gpus() {
  refuse_code_of_the_user();
  VisibleGpus devices;
  devices.built = true;
  cudaRuntimeGetVersion(&devices.runtime_version);
  if (cudaDriverGetVersion(&devices.driver_version) != cudaSuccess) devices.driver_version = 0;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    devices.why_none = why(error, devices);
    return devices;
  }
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    numbers.push_back(i);
    devices.gpus.push_back({properties.name, spell(properties.uuid), spell_bus(properties), properties.totalGlobalMem,
                            state_of(i, properties)});
  }
  ask_who_reaches_whom(devices.gpus, numbers);
  if (devices.gpus.empty()) devices.why_none = "the driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?)";
  return devices;
}

std::string cuda_version() { return spell_version(CUDART_VERSION); }

}  // namespace lockstep
