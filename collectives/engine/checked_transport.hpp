// SPDX-License-Identifier: Apache-2.0
// All messages of this transport carry a checksum, control messages too. A changed one is an error that names both
// ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// 64 bits that differ for certain where the bytes differ in up to eight in a row, and almost for certain otherwise.
std::uint64_t checksum(std::span<const std::byte> bytes);

// All members of a communicator have it, or none.
std::unique_ptr<Transport> checked_transport(std::unique_ptr<Transport> inner);

}  // namespace lockstep
