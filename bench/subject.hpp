// SPDX-License-Identifier: Apache-2.0
// What a row measures: a collective with its type, size and buffers; how many bytes it is said to move; data whose
// result is exact in every type, and the judgement of that result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

struct Subject {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool in_place = false;
  std::size_t count = 0;  // elements of one block: of a vector that is reduced or broadcast, or for each member
};

bool reduces_data(Collective collective);
bool has_root(Collective collective);
// Whether its data are cut into as many blocks as there are members.
bool has_blocks(Collective collective);
// Whether a bench measures it.
bool can_be_measured(Collective collective);
// Why this operation is not defined for this type; empty: it is.
std::string why_not(const Subject& subject);

// So large that all its data are `bytes`, as nccl-tests counts them, rounded down to whole elements.
std::size_t count_of(Collective collective, DataType type, std::uint64_t bytes, int members);
std::uint64_t bytes_of(const Subject& subject, int members);
// busbw divided by algbw, by nccl-tests' formulas.
double bus_factor(Collective collective, int members);
// What a member must at least read and write, in bytes, whatever the algorithm.
double least_traffic(const Subject& subject, int members, int rank);

// The buffers of one member.
class Buffers {
 public:
  Buffers(const Subject& subject, int members, int rank);

  // Of all buffers together.
  static std::uint64_t memory(const Subject& subject, int members);
  void* input() { return subject_.in_place ? output_.data() + in_offset_ : input_.data(); }
  void* output() { return output_.data() + out_offset_; }
  std::size_t input_count() const { return in_count_; }
  std::size_t output_count() const { return out_count_; }
  detail::Ask ask();

  void fill();
  // Wrong elements of the output, after fill() and one operation; `bits` becomes a hash of the output.
  std::uint64_t count_wrong(std::uint64_t& bits) const;

 private:
  double given(int rank, std::size_t element) const;
  double expected(std::size_t element) const;
  std::vector<double> combined() const;

  Subject subject_;
  int members_;
  int rank_;
  std::size_t in_count_ = 0;
  std::size_t out_count_ = 0;
  std::size_t in_offset_ = 0;  // in bytes, in place
  std::size_t out_offset_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

}  // namespace lockstep::bench
