// SPDX-License-Identifier: Apache-2.0
// The build with NCCL: the version that it was made with. Its calls are behind collectives/nccl/library.hpp, and which
// version is there at run time is asked there.
#include <nccl.h>

#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"

namespace lockstep {

std::string nccl_version() { return text(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH); }

}  // namespace lockstep
