// SPDX-License-Identifier: Apache-2.0
// A session over a communicator of the user's, in a program that has started MPI itself. The
// communicator is duplicated once and not used otherwise.
#pragma once

#include <mpi.h>

#include "topology/machine/session.hpp"

namespace lockstep {

Session session_over(MPI_Comm comm, SessionOptions options = {});

}  // namespace lockstep
