// SPDX-License-Identifier: Apache-2.0
// Describes the subject of a row: a collective with its type, size and kind of buffers, and the number of bytes that it
// moves by convention.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bench/gradients.hpp"
#include "collectives/spec.hpp"

namespace lockstep::bench {

struct Subject {
  Collective collective = Collective::all_reduce;  // sendrecv: sends to the next member, receives from the one before
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool in_place = false;
  bool cold = false;      // the caches are emptied of the buffers before every sample
  std::size_t count = 0;  // elements of one block: of a vector that is reduced or broadcast, or for each member
  // Holds the gradients that an all_reduce in place exchanges bucket by bucket, `count` elements. Null: it is one call.
  std::shared_ptr<const GradientList> gradients = nullptr;

  // Returns the elements of the block from one member to another. In unequal forms half of the members have half of the
  // count, the others one and a half of it.
  std::size_t count_between(int from, int to, int members) const;
};

// Returns the exchange of a model's gradients as a subject.
Subject subject_of(GradientList gradients);

// Returns true if no member can complete before all have begun.
bool waits_for_all(Collective collective);
// Returns true if the data is cut into as many blocks as there are members.
bool has_blocks(Collective collective);
// Returns the reason if the subject cannot be measured, such as an operation that the type does not define; else an
// empty string.
std::string why_not(const Subject& subject);

// Returns the count for which all data has `bytes`, as nccl-tests counts them, rounded down to whole elements.
std::size_t count_of(Collective collective, DataType type, std::uint64_t bytes, int members);
std::uint64_t bytes_of(const Subject& subject, int members);
// Returns busbw divided by algbw, by nccl-tests' formulas.
double bus_factor(Collective collective, int members);
// Returns the bytes of all buffers of the member with the most, at least 1. Absurd sizes give an absurd number, not a
// small one.
std::uint64_t memory_of(const Subject& subject, int members);

}  // namespace lockstep::bench
