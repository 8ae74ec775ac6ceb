// SPDX-License-Identifier: Apache-2.0
// Includes all public headers of Lockstep, so that a program needs only this one. Programs that start MPI themselves
// also include <lockstep_mpi.hpp>.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/local.hpp"
#include "collectives/gpu/memory.hpp"
#include "runtime/any_strategy.hpp"
#include "runtime/any_tensor.hpp"
#include "runtime/cluster/resolver.hpp"
#include "runtime/extended.hpp"
#include "runtime/gradient_reducer.hpp"
#include "runtime/replica_weights.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/task_server.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"
#include "runtime/virtual_replicas.hpp"
#include "topology/group.hpp"
#include "topology/local_exchange.hpp"
#include "topology/machine/session.hpp"
