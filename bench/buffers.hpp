// SPDX-License-Identifier: Apache-2.0
// A member's buffers for a subject: data whose result is exact in every type, and the judgement of that result.
#pragma once

#include <span>
#include <vector>

#include "bench/subject.hpp"
#include "collectives/communicator/call_request.hpp"

namespace lockstep::bench {

// Whether this machine can put memory out of its caches, and doing it.
bool can_flush_caches();
void flush_caches(std::span<std::byte> bytes);

class Buffers {
 public:
  Buffers(const Subject& subject, int members, int rank);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void* input() { return subject_.in_place ? output_.data() + in_offset_ : input_.data(); }
  void* output() { return output_.data() + out_offset_; }
  std::span<const std::byte> input_bytes() {
    return {static_cast<const std::byte*>(input()), in_count_ * size_of(subject_.type)};
  }
  std::span<std::byte> output_bytes() {
    return {static_cast<std::byte*>(output()), out_count_ * size_of(subject_.type)};
  }
  std::size_t input_count() const { return in_count_; }
  std::size_t output_count() const { return out_count_; }
  // Of unequal forms: elements for and from every member.
  const std::vector<std::size_t>& gives() const { return gives_; }
  const std::vector<std::size_t>& takes() const { return takes_; }
  // Of a collective; an exchange is not asked for but sent.
  detail::CallRequest request();

  void fill();
  // Wrong elements of the output, after fill() and one operation; `bits` becomes a hash of the output.
  std::uint64_t count_wrong(std::uint64_t& bits) const;
  // The same with random data, where rounding has a bound: elements, of many a sample, that are beyond it. `wire`: how
  // messages carried it.
  bool takes_random() const;
  void fill_randomly(std::uint64_t seed);
  std::uint64_t count_beyond(std::uint64_t seed, WireFormat wire = WireFormat::as_is) const;
  // Out of all caches of the machine.
  void flush();

 private:
  // Of the output: what lies in a member's input.
  struct BufferPart {
    int from;
    std::size_t begin;
    std::size_t count;
  };
  void cut_equally();
  void cut_unequally();
  double given(int rank, std::size_t element) const;
  std::size_t begin_of_block(int from, int to) const;
  std::vector<BufferPart> pieces() const;
  int contributors() const;             // members 0 to this, of a reduction
  std::size_t first_of_result() const;  // in everybody's input, of a reduction
  std::vector<double> combined() const;

  Subject subject_;
  int members_;
  int rank_;
  std::size_t in_count_ = 0;
  std::size_t out_count_ = 0;
  std::vector<std::size_t> gives_;
  std::vector<std::size_t> takes_;
  std::size_t in_offset_ = 0;  // in bytes, in place
  std::size_t out_offset_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

}  // namespace lockstep::bench
