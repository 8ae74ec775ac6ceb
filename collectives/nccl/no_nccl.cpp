// SPDX-License-Identifier: Apache-2.0
// Stands in for nccl_library.cpp in builds without NCCL.
#include "collectives/nccl/library.hpp"

namespace lockstep::nccl {

std::unique_ptr<NcclInterface> load(std::string& why_none) {
  why_none = "this build has no NCCL: build it where nccl.h is, with -Dnccl=enabled";
  return nullptr;
}

}  // namespace lockstep::nccl
