// SPDX-License-Identifier: Apache-2.0
// The transport between processes: a round's messages by MPI's point-to-point calls, on the private communicator that
// the session has already. Needs no header of MPI to be included.
#pragma once

#include <functional>
#include <memory>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Among the members of the exchange, which outlives it and carries one transport at a time. Like the exchange, it is
// used by one thread at a time; those over different exchanges by different threads where MPI was started with
// MPI_THREAD_SERIALIZED or more. Nothing where the exchange is not over MPI.
std::unique_ptr<Transport> mpi_transport(Exchange& exchange);

// What carries the messages of the session's communicators: MPI or sockets of our own, or what the session stands on
// without MPI. Called by all members; they decide together when it is called first.
std::function<std::unique_ptr<Transport>(Exchange&)> transport_of(Session& session);

}  // namespace lockstep
