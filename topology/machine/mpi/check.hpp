// SPDX-License-Identifier: Apache-2.0
// MPI's return codes as errors with the place of the call.
#pragma once

#include <mpi.h>

#include <source_location>

namespace lockstep {

void check_mpi(int code, std::source_location where = std::source_location::current());

}  // namespace lockstep
