// SPDX-License-Identifier: Apache-2.0
// Adds a checksum to every message of a transport, including control messages. A message that changed on its way
// becomes an error that names its sender and its receiver.
//
// LOCKSTEP_CHECKSUMS=1 puts it around the transport of each communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// Returns 64 bits. They differ for certain if the changed bytes all lie in one 8-byte word. Otherwise they almost
// certainly differ.
std::uint64_t checksum(std::span<const std::byte> bytes);

// Returns a transport that adds and verifies checksums, and takes over `inner`. All members of a communicator must use
// it, or none. Its done() and receive_control() throw Error corrupt if a message changed.
std::unique_ptr<Transport> checked_transport(std::unique_ptr<Transport> inner);

}  // namespace lockstep
