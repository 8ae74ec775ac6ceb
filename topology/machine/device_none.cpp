// SPDX-License-Identifier: Apache-2.0
// Stands for the build without CUDA: it has no GPUs, and says the reason.
#include "topology/machine/device.hpp"

namespace lockstep {

VisibleGpus read_visible_gpus() {
  VisibleGpus devices;
  devices.why_none = "this build has no CUDA (meson setup -Dcuda=enabled builds with it)";
  return devices;
}

std::string cuda_version() { return "not built in"; }

}  // namespace lockstep
