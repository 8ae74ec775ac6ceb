// SPDX-License-Identifier: Apache-2.0
// The build with NCCL: today only its version; the calls come with the GPU transports.
#include <nccl.h>

#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"

namespace lockstep {

std::string nccl_version() { return text(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH); }

}  // namespace lockstep
