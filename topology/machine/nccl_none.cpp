// SPDX-License-Identifier: Apache-2.0
// Stands for the build without NCCL.
#include "topology/machine/device.hpp"

namespace lockstep {

std::string nccl_version() { return "not built in"; }

}  // namespace lockstep
