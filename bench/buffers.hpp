// SPDX-License-Identifier: Apache-2.0
// Holds a member's buffers for a subject. Their data has an exact result in every type, so that the result can be
// judged.
#pragma once

#include <span>
#include <vector>

#include "bench/subject.hpp"
#include "collectives/communicator/call_request.hpp"

namespace lockstep::bench {

// Returns true if this processor lets programs empty its caches of given memory; flush_caches() does it.
bool can_flush_caches();
void flush_caches(std::span<std::byte> bytes);

// Owns the input and the output of one member, knows the right result, and counts wrong elements.
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
  // Return, for unequal forms, the number of elements for and from every member.
  const std::vector<std::size_t>& send_counts() const { return send_counts_; }
  const std::vector<std::size_t>& receive_counts() const { return receive_counts_; }
  // Returns the request of a collective. An exchange has no request: it is sent as messages.
  detail::CallRequest request();

  // Writes the exact test data into the input.
  void fill();
  // Returns the number of wrong elements in the output, after fill() and one operation. Sets `bits` to a hash of the
  // output.
  std::uint64_t count_wrong(std::uint64_t& bits) const;
  // The next three do the same with random data, for which rounding has a bound. The function takes_random() returns
  // true if the subject has such a bound. The function count_beyond() returns the number of sampled elements beyond it;
  // `wire` is the format of the messages.
  bool takes_random() const;
  void fill_randomly(std::uint64_t seed);
  std::uint64_t count_beyond(std::uint64_t seed, WireFormat wire = WireFormat::as_is) const;
  // Empties all caches of the machine of these buffers.
  void flush();

 private:
  // Names a piece of the output: its elements `begin` to `begin + count` come from the input of member `from`.
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
  int contributors() const;             // of a reduction: members 0 to this one contribute
  std::size_t first_of_result() const;  // of a reduction: first element in every input
  std::vector<double> combined() const;

  Subject subject_;
  int members_;
  int rank_;
  std::size_t in_count_ = 0;
  std::size_t out_count_ = 0;
  std::vector<std::size_t> send_counts_;
  std::vector<std::size_t> receive_counts_;
  std::size_t in_offset_ = 0;  // in bytes; used in place
  std::size_t out_offset_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

}  // namespace lockstep::bench
