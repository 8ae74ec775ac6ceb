// SPDX-License-Identifier: Apache-2.0
// What no algorithm can pass on this allocation, measured in the same job: a message to a neighbour or a barrier,
// reading what a neighbour has just written, the reduction kernel, the links between nodes. From these, and from a copy
// that is measured beside each row, follows the time below which a row cannot be.
#pragma once

#include <optional>

#include "bench/measure.hpp"
#include "bench/subject.hpp"

namespace lockstep::bench {

// Bandwidths in 10^9 bytes a second; 0: there is nothing to measure here.
struct Ceilings {
  double message_us = 0;  // the least that a message of one byte takes
  double read = 0;        // by each member, of what its neighbour on the node has written, all at once
  double link = 0;        // out of and into each node at once
};

// All members call it.
Ceilings measure_ceilings(Communicator& world, const Effort& effort, std::uint64_t seed);

// Of the kernel from cache to cache, in bytes of the result; all members at once.
double measure_kernel(Communicator& world, DataType type, ReduceOp op);

// What any algorithm must move, in bytes.
struct MinimumTraffic {
  double memory = 0;    // read and written, of all members together, divided by their number
  double foreign = 0;   // of other members' data, read by a member or pushed to it
  double reduced = 0;   // results of the reduction that a member computes
  double link = 0;      // out of or into the node that has most of it
  double messages = 1;  // that follow each other; less where some only give, and may be done before others take
};
MinimumTraffic minimum_traffic(const Subject& subject, int members, const Topology& topology,
                               std::span<const int> ranks);

// `copy` is the rate at which all members copied at once, in bytes of the copy. Nothing where nothing was measured.
std::optional<Limit> limit_of(const MinimumTraffic& moves, const Ceilings& ceilings, double kernel, double copy);

}  // namespace lockstep::bench
