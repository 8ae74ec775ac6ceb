// SPDX-License-Identifier: Apache-2.0
// The environment variables of a process. They are handed down as a function, so that tests can have others.
#pragma once

#include <sys/auxv.h>

#include <cstdlib>
#include <functional>

namespace lockstep {

// Looks up a variable as getenv() does: returns null for one that is not set.
using Environment = std::function<const char*(const char* name)>;

// True in a program that has more rights than the user that starts it: set-user-id, set-group-id, or capabilities.
inline bool has_raised_rights() { return ::getauxval(AT_SECURE) != 0; }

// Looks up a variable of this process. Returns null for all of them in a program with raised rights. Otherwise the
// user that starts it could choose its files and its peers.
inline const char* process_environment(const char* name) { return ::secure_getenv(name); }

// Throws Error usage if this program has raised rights and a variable could make a library load code that the user
// names. The libraries are those under Lockstep: MPI, hwloc, UCX, libfabric, gRPC, CUDA, NCCL. Callers call this
// before their first call of each of them.
//
// After a clean search it never looks again, because MPI sets such variables itself as it starts. If the program
// started MPI before, MPI's own variables do not count.
void refuse_code_of_the_user(bool has_program_started_mpi = false);

}  // namespace lockstep
