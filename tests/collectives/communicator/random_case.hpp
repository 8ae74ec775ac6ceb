// SPDX-License-Identifier: Apache-2.0
// A random call, done by a communicator and held against a serial reference that shares no code with it. Data are
// small integers, so that every order of combining them gives the same bits in every type.
#pragma once

#include <rapidcheck.h>

#include "collectives/communicator/communicator.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::test {

struct RandomCase {
  int members = 1;
  Collective collective = Collective::all_reduce;
  DataType type = DataType::i32;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::fast;
  std::size_t count = 0;
  std::vector<std::size_t> counts;  // of the unequal forms; all_to_all_v: members x members
  int root = 0;
  std::uint32_t in_place = 0;  // on which members, a bit for each
  bool async = false;
  std::uint32_t algorithm = 0;      // which of those that there are; 0: the planner's choice
  std::uint64_t segment_bytes = 0;  // in which it goes, where it can be cut and an algorithm is given
  std::uint32_t seed = 0;
  // Where there are GPUs: which members have their input in the memory of one, and which their output; a bit for each.
  std::uint32_t inputs_there = 0;
  std::uint32_t outputs_there = 0;
  bool in_stream = false;  // where there are GPUs, as all members have it
  bool is_late = false;    // what is given comes in that stream after the call has begun; of GPUs of the tests' own
  bool in_nodes = false;   // the algorithm is one of those that work in the memory of nodes, if there is one
  std::vector<int> nodes;  // how many members each has, one after the other; none: all are on one

  Bytes to_bytes() const;
  static RandomCase from_bytes(std::span<const std::byte> bytes);
  // The table of one row that makes the planner decide so; empty: it is free.
  std::string table() const;
  // Nothing where all are on one node.
  std::shared_ptr<const Topology> topology() const;
};

std::ostream& operator<<(std::ostream& out, const RandomCase& each);

// For at most so many members; exactly so many if `fixed`.
rc::Gen<RandomCase> random_case(int members, bool fixed);
// The same, the members on several nodes.
rc::Gen<RandomCase> random_case_on_nodes(int members);

// Empty if the communicator did it right; else what was wrong.
std::string run_case(Communicator& world, const RandomCase& each);

}  // namespace lockstep::test
