// SPDX-License-Identifier: Apache-2.0
// Turns MPI's return codes into errors with the place of the call, and tells if MPI has ended.
#pragma once

#include <mpi.h>

namespace lockstep {

// Throws Error mpi unless `code` is MPI_SUCCESS. The defaults name the caller (std::source_location is not in clang
// 14).
void check_mpi(int code, const char* function = __builtin_FUNCTION(), int line = __builtin_LINE());

// Returns true if MPI_Finalize has been called; MPI may then not be called for anything.
bool mpi_has_ended();

}  // namespace lockstep
