// SPDX-License-Identifier: Apache-2.0
// What a program includes beside <lockstep.hpp> if it starts MPI itself. Needs MPI's header.
#pragma once

#include "topology/machine/session_mpi.hpp"
