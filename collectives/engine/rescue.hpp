// SPDX-License-Identifier: Apache-2.0
// A transport that ends for all of its members when one of them is gone, with another one beside it, by which those
// that are left find each other.
#pragma once

#include <memory>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// Of the same members. Until they regroup, nothing goes by the rescue.
std::unique_ptr<Transport> with_rescue(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue);

}  // namespace lockstep
