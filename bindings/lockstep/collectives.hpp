// SPDX-License-Identifier: Apache-2.0
// Includes the part of <lockstep.hpp> for programs that only call collectives: the session, communicators, batches and
// grids. It compiles in about 0.6 of the time.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/communicator.hpp"
#include "topology/machine/session.hpp"
