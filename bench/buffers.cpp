// SPDX-License-Identifier: Apache-2.0
// Fills buffers with data that has an exact result in every type, and counts wrong elements. Random data is in
// random_data.cpp.
#include "bench/buffers.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/values.hpp"

namespace lockstep::bench {
namespace {

using enum Collective;

// Combines small whole numbers.
double combine(ReduceOp op, double a, double b) {
  const auto x = static_cast<int>(a);
  const auto y = static_cast<int>(b);
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::logical_and:
      return x != 0 && y != 0 ? 1 : 0;
    case ReduceOp::logical_or:
      return x != 0 || y != 0 ? 1 : 0;
    case ReduceOp::logical_xor:
      return (x != 0) != (y != 0) ? 1 : 0;
    case ReduceOp::bit_and:
      return x & y;
    case ReduceOp::bit_or:
      return x | y;
    case ReduceOp::bit_xor:
      return x ^ y;
    default:
      return a + b;
  }
}

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

bool can_flush_caches() {
#if defined(__x86_64__) || defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

void flush_caches(std::span<std::byte> bytes) {
  constexpr std::size_t line = 64;
  for (std::size_t i = 0; i < bytes.size(); i += line) {
#if defined(__x86_64__)
    _mm_clflush(bytes.data() + i);
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" : : "r"(bytes.data() + i) : "memory");
#endif
  }
#if defined(__x86_64__)
  _mm_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb ish" : : : "memory");
#endif
}

Buffers::Buffers(const Subject& subject, int members, int rank) : subject_(subject), members_(members), rank_(rank) {
  if (is_unequal(subject.collective))
    cut_unequally();
  else
    cut_equally();
  const std::size_t size = size_of(subject.type);
  if (subject.collective == broadcast) subject_.in_place = true;
  if (subject_.in_place) {
    output_.resize(std::max(in_count_, out_count_) * size);
    const std::size_t mine = static_cast<std::size_t>(rank) * subject.count * size;
    if (out_count_ > in_count_ && in_count_ > 0) in_offset_ = mine;
    if (in_count_ > out_count_ && out_count_ > 0) out_offset_ = mine;
  } else {
    input_.resize(in_count_ * size);
    output_.resize(out_count_ * size);
  }
}

void Buffers::cut_equally() {
  const Collective which = subject_.collective;
  const std::size_t count = which == barrier ? 0 : subject_.count;
  const std::size_t all = count * static_cast<std::size_t>(members_);
  const bool root = rank_ == subject_.root;
  const bool wide_in = which == reduce_scatter || which == all_to_all || (which == scatter && root);
  const bool wide_out = which == all_gather || which == all_to_all || (which == gather && root);
  const bool no_input = (which == broadcast || which == scatter) && !root;
  const bool no_output = (which == reduce || which == gather) && !root;
  in_count_ = no_input ? 0 : wide_in ? all : count;
  out_count_ = no_output ? 0 : wide_out ? all : count;
}

// A member that sends or receives a part only has the counts nevertheless, if the call asks for them.
void Buffers::cut_unequally() {
  const Collective which = subject_.collective;
  for (int peer = 0; peer < members_; ++peer) {
    send_counts_.push_back(subject_.count_between(rank_, peer, members_));
    receive_counts_.push_back(subject_.count_between(peer, rank_, members_));
  }
  const bool root = rank_ == subject_.root;
  const auto own = static_cast<std::size_t>(rank_);
  const bool gathers = which == all_gather_v || which == gather_v;
  in_count_ = which == scatter_v && !root ? 0 : gathers ? receive_counts_[own] : total(send_counts_);
  out_count_ = which == gather_v && !root         ? 0
               : gathers || which == all_to_all_v ? total(receive_counts_)
                                                  : send_counts_[own];
  if (gathers) send_counts_.clear();
  if (which == scatter_v || which == reduce_scatter_v) receive_counts_.clear();
  if (which == gather_v && !root) receive_counts_.clear();
  if (which == scatter_v && !root) send_counts_.clear();
}

detail::CallRequest Buffers::request() {
  if (subject_.collective == barrier) return {.collective = barrier};
  detail::CallRequest request{.collective = subject_.collective,
                              .type = subject_.type,
                              .element_bytes = size_of(subject_.type),
                              .root = subject_.root};
  request.reduction.op = subject_.op;
  if (in_count_ > 0) request.input = {input(), in_count_};
  if (out_count_ > 0) request.output = {output(), out_count_};
  request.send_counts = send_counts_;
  request.receive_counts = receive_counts_;
  return request;
}

// Returns 2 if the element's turn is the member's, else 1. So sums, products and all other results stay small and
// exact.
double Buffers::given(int rank, std::size_t element) const {
  return static_cast<int>(element % static_cast<std::size_t>(members_)) == rank ? 2 : 1;
}

void Buffers::fill() {
  std::ranges::fill(output_, std::byte{0x55});
  with_type(subject_.type, [&](auto zero) {
    using T = decltype(zero);
    auto* to = static_cast<T*>(input());
    for (std::size_t i = 0; i < in_count_; ++i) to[i] = number<T>(given(rank_, i));
  });
}

void Buffers::flush() {
  flush_caches(input_);
  flush_caches(output_);
}

int Buffers::contributors() const {
  return subject_.collective == scan ? rank_ + 1 : subject_.collective == exscan ? rank_ : members_;
}

std::size_t Buffers::first_of_result() const {
  const bool scatters = subject_.collective == reduce_scatter || subject_.collective == reduce_scatter_v;
  return scatters ? begin_of_block(rank_, rank_) : 0;
}

// Returns the result of an element by its turn.
std::vector<double> Buffers::combined() const {
  std::vector<double> all(static_cast<std::size_t>(members_));
  for (std::size_t turn = 0; turn < all.size(); ++turn) {
    double value = given(0, turn);
    for (int rank = 1; rank < contributors(); ++rank) value = combine(subject_.op, value, given(rank, turn));
    all[turn] = value;
    if (subject_.op == ReduceOp::avg) all[turn] /= members_;
  }
  return all;
}

// Returns the place of the data for a member in the sender's buffer.
std::size_t Buffers::begin_of_block(int from, int to) const {
  std::size_t begin = 0;
  for (int before = 0; before < to; ++before) begin += subject_.count_between(from, before, members_);
  return begin;
}

std::vector<Buffers::BufferPart> Buffers::pieces() const {
  switch (subject_.collective) {
    case broadcast:
      return {{subject_.root, 0, out_count_}};
    case sendrecv:
      return {{(rank_ + members_ - 1) % members_, 0, out_count_}};
    case scatter:
    case scatter_v:
      return {{subject_.root, begin_of_block(subject_.root, rank_), out_count_}};
    default:
      break;
  }
  std::vector<BufferPart> all;
  all.reserve(static_cast<std::size_t>(members_));
  const bool crosses = subject_.collective == all_to_all || subject_.collective == all_to_all_v;
  for (int from = 0; from < members_; ++from)
    all.push_back({from, crosses ? begin_of_block(from, rank_) : 0, subject_.count_between(from, rank_, members_)});
  return all;
}

std::uint64_t Buffers::count_wrong(std::uint64_t& bits) const {
  bits = 0xcbf29ce484222325U;
  const bool undefined = subject_.collective == exscan && rank_ == 0;
  if (out_count_ == 0 || undefined) return 0;
  const std::byte* const begin = output_.data() + out_offset_;
  for (std::size_t i = 0; i < out_count_ * size_of(subject_.type); ++i)
    bits = (bits ^ std::to_integer<std::uint64_t>(begin[i])) * 0x100000001b3U;
  std::uint64_t wrong = 0;
  with_type(subject_.type, [&](auto zero) {
    using T = decltype(zero);
    // The comparison is by bits, because a zero of the other sign is wrong too.
    const auto judge = [&](std::size_t i, const T& wanted) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&wanted);
      if (!std::equal(bytes, bytes + sizeof(T), begin + i * sizeof(T))) ++wrong;
    };
    if (!reduces(subject_.collective)) {
      std::size_t at = 0;
      for (const BufferPart& piece : pieces()) {
        for (std::size_t i = 0; i < piece.count; ++i) judge(at++, number<T>(given(piece.from, piece.begin + i)));
      }
      return;
    }
    const std::size_t first = first_of_result();
    std::vector<T> right;
    // The sums are exact, and a mean is rounded correctly, in the precision in which the type is computed.
    for (const double each : combined()) right.push_back(number<T>(std::is_integral_v<T> ? std::trunc(each) : each));
    for (std::size_t i = 0; i < out_count_; ++i) judge(i, right[(first + i) % right.size()]);
  });
  return wrong;
}

}  // namespace lockstep::bench
