// SPDX-License-Identifier: Apache-2.0
// Combines two transports. The usual one ends for all of its members when one of them dies. The surviving members then
// find each other over the other one, the rescue.
//
// Tasks with LOCKSTEP_TRANSPORT=ucx use it: UCX is the usual transport, and TCP the rescue.
#pragma once

#include <memory>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// Returns a transport that uses `usual` until begin_regrouping() and `rescue` afterwards. Takes over both, which have
// the same members.
std::unique_ptr<Transport> with_rescue(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue);

}  // namespace lockstep
