// SPDX-License-Identifier: Apache-2.0
// Declares the transport by MPI's point-to-point calls, on the session's private communicator. This header needs no
// header of MPI.
#pragma once

#include <functional>
#include <memory>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Makes a transport among the members of the exchange, or returns null if the exchange does not go over MPI. The
// exchange must outlive it, and carries one transport at a time. One thread at a time may use it. Different threads may
// use transports over different exchanges if MPI was started with MPI_THREAD_SERIALIZED or more.
std::unique_ptr<Transport> mpi_transport(Exchange& exchange);

// Returns a function that makes transports for the session's communicators: over MPI, over Lockstep's own sockets, or
// over the session's backend without MPI. All members call it; at the first call they decide together.
std::function<std::unique_ptr<Transport>(Exchange&)> transport_of(Session& session);

}  // namespace lockstep
