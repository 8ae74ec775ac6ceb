// SPDX-License-Identifier: Apache-2.0
// The variables of a process, handed down, so that tests have others.
#pragma once

#include <sys/auxv.h>

#include <cstdlib>
#include <functional>

namespace lockstep {

using Environment = std::function<const char*(const char* name)>;  // like getenv

// True in a program that may do more than the user who starts it: set-user-id, set-group-id, or with capabilities.
inline bool has_raised_rights() { return ::getauxval(AT_SECURE) != 0; }

// Looks up a variable of this process. One with raised rights has none: the user who starts it could otherwise choose
// its files and its peers.
inline const char* process_environment(const char* name) { return ::secure_getenv(name); }

// Throws Error usage if this program has raised rights and a variable is set by which a library under Lockstep (MPI,
// hwloc, UCX, libfabric, gRPC, CUDA, NCCL) could load code that the user names. Called before the first call of each of
// these libraries. Once nothing was found it looks no more, because MPI sets such variables itself as it starts. If the
// program has started MPI before, MPI's own variables are not looked at.
void refuse_code_of_the_user(bool has_program_started_mpi = false);

}  // namespace lockstep
