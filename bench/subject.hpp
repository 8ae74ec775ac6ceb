// SPDX-License-Identifier: Apache-2.0
// What a row measures: a collective with its type, size and kind of buffers, and how many bytes it is said to move.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/spec.hpp"

namespace lockstep::bench {

struct Subject {
  Collective collective = Collective::all_reduce;  // exchange: to the next member, from the one before
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool in_place = false;
  bool cold = false;      // the buffers are put out of the caches before every sample
  std::size_t count = 0;  // elements of one block: of a vector that is reduced or broadcast, or for each member

  // Elements of the block that goes from one member to another. In unequal forms half of the members have half of
  // the count, the others one and a half of it.
  std::size_t count_between(int from, int to, int members) const;
};

// "all_reduce"; "sendrecv" of what the library calls an exchange.
std::string_view name_of(Collective collective);
// Whether nobody can be done before everybody has come.
bool waits_for_all(Collective collective);
// Whether its data are cut into as many blocks as there are members.
bool has_blocks(Collective collective);
// Why this cannot be measured, such as an operation that is not defined for the type; empty: it can.
std::string why_not(const Subject& subject);

// So large that all its data are `bytes`, as nccl-tests counts them, rounded down to whole elements.
std::size_t count_of(Collective collective, DataType type, std::uint64_t bytes, int members);
std::uint64_t bytes_of(const Subject& subject, int members);
// busbw divided by algbw, by nccl-tests' formulas.
double bus_factor(Collective collective, int members);
// Of all buffers of the member that has most, at least 1; absurd sizes give an absurd number, not a small one.
std::uint64_t memory_of(const Subject& subject, int members);

}  // namespace lockstep::bench
