// SPDX-License-Identifier: Apache-2.0
// Declares the session of a program that starts MPI itself. Such a program includes it beside <lockstep.hpp>. It needs
// MPI's header <mpi.h>.
#pragma once

#include "topology/machine/session_mpi.hpp"
