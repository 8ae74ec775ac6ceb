// SPDX-License-Identifier: Apache-2.0
// The one header that a program includes.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/local.hpp"
#include "collectives/gpu/memory.hpp"
#include "runtime/cluster/resolver.hpp"
#include "runtime/extended.hpp"
#include "runtime/gradient_reducer.hpp"
#include "runtime/rpc/rpc.hpp"
#include "runtime/rpc/task_server.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable.hpp"
#include "runtime/virtual_replicas.hpp"
#include "topology/group.hpp"
#include "topology/local_exchange.hpp"
#include "topology/machine/session.hpp"
