// SPDX-License-Identifier: Apache-2.0
// The one header that a program includes.
#pragma once

#include "collectives/spec.hpp"
#include "topology/group.hpp"
#include "topology/local_exchange.hpp"
#include "topology/machine/session.hpp"
