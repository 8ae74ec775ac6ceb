// SPDX-License-Identifier: Apache-2.0
// Returns the version of NCCL that this was built with. collectives/nccl/library.hpp has its calls, and asks for the
// version at run time.
#include <nccl.h>

#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"

namespace lockstep {

std::string nccl_version() { return text(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH); }

}  // namespace lockstep
