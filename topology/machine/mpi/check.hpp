// SPDX-License-Identifier: Apache-2.0
// MPI's return codes as errors with the place of the call.
#pragma once

#include <mpi.h>

namespace lockstep {

// The place is the caller's (std::source_location is not in clang 14).
void check_mpi(int code, const char* function = __builtin_FUNCTION(), int line = __builtin_LINE());

}  // namespace lockstep
