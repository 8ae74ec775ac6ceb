// SPDX-License-Identifier: Apache-2.0
// Makes a session over a communicator of the user's, in a program that has started MPI itself.
#pragma once

#include <mpi.h>

#include "topology/machine/session.hpp"

namespace lockstep {

// Makes a session of the communicator's ranks, with the same numbers. All of them call it, after MPI_Init. Throws Error
// usage for no communicator, or an inter-communicator.
//
// The session makes a communicator of its own once (MPI_Comm_create), and uses `comm` for nothing else. It runs none of
// the attribute callbacks of `comm`, which the program may free at any time. The session's end waits for no other rank,
// so ranks may end several sessions in any order. Communicators of Lockstep may outlive it, up to MPI_Finalize.
Session session_over(MPI_Comm comm, SessionOptions options = {});

}  // namespace lockstep
