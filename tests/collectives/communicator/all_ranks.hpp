// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "tests/support/mpi_test.hpp"

namespace lockstep::test {

// All ranks of the running test, which meet again.
inline Communicator all_ranks(CommunicatorOptions options = {}) {
  std::vector<int> ranks(static_cast<std::size_t>(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {world(), session().shared_topology(), ranks, transport_of(session()), std::move(options)};
}

}  // namespace lockstep::test
