// SPDX-License-Identifier: Apache-2.0
// Measures the limits of this allocation in the same job. They are a message to a neighbour or a barrier, reading a
// neighbour's fresh data, the reduction kernel, and the links between nodes. Together with a copy beside each row they
// give the time below which no algorithm can be.
#pragma once

#include <optional>

#include "bench/measure.hpp"
#include "bench/subject.hpp"

namespace lockstep::bench {

// Bandwidths are in 10^9 bytes a second; 0 means that there is nothing to measure here.
struct Ceilings {
  double message_us = 0;  // the shortest time of a message of one byte
  double read = 0;        // each member reads its neighbour's fresh data, all at once
  double link = 0;        // out of and into each node at once
};

// Measures the ceilings. All members call it.
Ceilings measure_ceilings(Communicator& world, const Effort& effort, std::uint64_t seed);

// Returns the bandwidth of the reduction kernel from cache to cache, in 10^9 bytes of the result a second, with all
// members at once. It is 0 if there is no such kernel. All members call it.
double measure_kernel(Communicator& world, DataType type, ReduceOp op);

// Holds the traffic that no algorithm can avoid, in bytes.
struct MinimumTraffic {
  double memory = 0;    // reads and writes of all members, divided by the number of members
  double foreign = 0;   // data of other members that a member reads, or that others push to it
  double reduced = 0;   // results of the reduction that a member computes
  double link = 0;      // out of or into the busiest node
  double messages = 1;  // messages that follow each other; fewer if members that only send may complete early
};
MinimumTraffic minimum_traffic(const Subject& subject, int members, const Topology& topology,
                               std::span<const int> ranks);

// Returns the lower bound of the time of a row. `copy` is the rate of a copy by all members at once, in bytes of the
// copy. Returns nothing if nothing was measured.
std::optional<Limit> limit_of(const MinimumTraffic& moves, const Ceilings& ceilings, double kernel, double copy);

}  // namespace lockstep::bench
