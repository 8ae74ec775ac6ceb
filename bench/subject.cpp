// SPDX-License-Identifier: Apache-2.0
#include "bench/subject.hpp"

#include <algorithm>
#include <cmath>
#include <complex>

#include "collectives/types.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using enum Collective;

template <class T>
T number(double value) {
  if constexpr (std::is_same_v<T, std::complex<float>>)
    return {static_cast<float>(value), 0};
  else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return T(static_cast<float>(value));
  else
    return T(value);
}

// Calls f with a value of the C++ type.
template <class F>
void with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::i8:
      return f(std::int8_t{});
    case DataType::i16:
      return f(std::int16_t{});
    case DataType::i32:
      return f(std::int32_t{});
    case DataType::i64:
      return f(std::int64_t{});
    case DataType::u16:
      return f(std::uint16_t{});
    case DataType::u32:
      return f(std::uint32_t{});
    case DataType::u64:
      return f(std::uint64_t{});
    case DataType::f16:
      return f(f16{});
    case DataType::bf16:
      return f(bf16{});
    case DataType::f32:
      return f(float{});
    case DataType::f64:
      return f(double{});
    case DataType::c64:
      return f(std::complex<float>{});
    case DataType::c128:
      return f(std::complex<double>{});
    default:
      return f(std::uint8_t{});
  }
}

bool is_logical(ReduceOp op) { return op >= ReduceOp::logical_and && op <= ReduceOp::logical_xor; }
bool is_bitwise(ReduceOp op) { return op >= ReduceOp::bit_and && op <= ReduceOp::bit_xor; }

// Of small whole numbers.
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

}  // namespace

bool reduces_data(Collective collective) { return reduces(collective); }

bool has_root(Collective collective) {
  return collective == reduce || collective == broadcast || collective == gather || collective == scatter;
}

bool has_blocks(Collective collective) {
  return collective == reduce_scatter || collective == all_gather || collective == gather || collective == scatter ||
         collective == all_to_all;
}

bool can_be_measured(Collective collective) { return collective <= barrier; }

std::string why_not(const Subject& subject) {
  if (!can_be_measured(subject.collective)) return text(to_string(subject.collective), " is not measured yet");
  if (!reduces(subject.collective)) return {};
  const bool complex = subject.type == DataType::c64 || subject.type == DataType::c128;
  const bool whole = subject.type <= DataType::u64;
  const ReduceOp op = subject.op;
  if (op == ReduceOp::user || op == ReduceOp::premul_sum) return text(to_string(op), " is not measured");
  if (complex && op != ReduceOp::sum && op != ReduceOp::prod && op != ReduceOp::avg)
    return "complex numbers have sum, prod and avg only";
  if ((is_logical(op) || is_bitwise(op)) && !whole) return "logical and bitwise operations are for integers";
  if (op == ReduceOp::avg && (subject.collective == scan || subject.collective == exscan))
    return "an avg of a part of the members is not defined";
  return {};
}

std::size_t count_of(Collective collective, DataType type, std::uint64_t bytes, int members) {
  const std::uint64_t blocks = has_blocks(collective) ? static_cast<std::uint64_t>(members) : 1;
  return bytes / (size_of(type) * blocks);
}

std::uint64_t bytes_of(const Subject& subject, int members) {
  const std::uint64_t blocks = has_blocks(subject.collective) ? static_cast<std::uint64_t>(members) : 1;
  return subject.collective == barrier ? 0 : subject.count * size_of(subject.type) * blocks;
}

double bus_factor(Collective collective, int members) {
  const double n = members;
  if (collective == all_reduce) return 2 * (n - 1) / n;
  if (has_blocks(collective)) return (n - 1) / n;
  return 1;
}

double least_traffic(const Subject& subject, int members, int rank) {
  const auto block = static_cast<double>(subject.count * size_of(subject.type));
  const double all = block * members;
  const bool root = rank == subject.root;
  switch (subject.collective) {
    case reduce:
      return root ? 2 * block : block;
    case reduce_scatter:
      return all + block;
    case all_gather:
      return block + all;
    case gather:
      return root ? block + all : block;
    case scatter:
      return root ? all + block : block;
    case all_to_all:
      return 2 * all;
    case barrier:
      return 0;
    default:
      return 2 * block;
  }
}

Buffers::Buffers(const Subject& subject, int members, int rank) : subject_(subject), members_(members), rank_(rank) {
  const auto n = static_cast<std::size_t>(members);
  const std::size_t count = subject.collective == barrier ? 0 : subject.count;
  const bool root = rank == subject.root;
  const bool wide_in = subject.collective == reduce_scatter || subject.collective == all_to_all ||
                       (subject.collective == scatter && root);
  const bool wide_out =
      subject.collective == all_gather || subject.collective == all_to_all || (subject.collective == gather && root);
  const bool no_input = (subject.collective == broadcast || subject.collective == scatter) && !root;
  const bool no_output = (subject.collective == reduce || subject.collective == gather) && !root;
  in_count_ = no_input ? 0 : wide_in ? count * n : count;
  out_count_ = no_output ? 0 : wide_out ? count * n : count;
  if (subject.collective == broadcast) subject_.in_place = true;
  const std::size_t size = size_of(subject.type);
  if (subject_.in_place) {
    output_.resize(std::max(in_count_, out_count_) * size);
    const std::size_t mine = static_cast<std::size_t>(rank) * count * size;
    if (wide_out && !wide_in) in_offset_ = mine;
    if (wide_in && !wide_out && !no_output) out_offset_ = mine;
  } else {
    input_.resize(in_count_ * size);
    output_.resize(out_count_ * size);
  }
}

std::uint64_t Buffers::memory(const Subject& subject, int members) {
  return (subject.in_place ? 1 : 2) * std::max<std::uint64_t>(bytes_of(subject, members), 1);
}

detail::Ask Buffers::ask() {
  if (subject_.collective == barrier) return {.collective = barrier};
  detail::Ask ask{.collective = subject_.collective,
                  .type = subject_.type,
                  .element_bytes = size_of(subject_.type),
                  .root = subject_.root};
  ask.reduction.op = subject_.op;
  if (in_count_ > 0) ask.input = {input(), in_count_};
  if (out_count_ > 0) ask.output = {output(), out_count_};
  return ask;
}

// 1, and 2 where the element's turn is the member's: sums, products and all else stay small and exact.
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

// Of an element by its turn.
std::vector<double> Buffers::combined() const {
  const int last = subject_.collective == scan ? rank_ + 1 : subject_.collective == exscan ? rank_ : members_;
  std::vector<double> all(static_cast<std::size_t>(members_));
  for (std::size_t turn = 0; turn < all.size(); ++turn) {
    double value = given(0, turn);
    for (int rank = 1; rank < last; ++rank) value = combine(subject_.op, value, given(rank, turn));
    all[turn] = value;
  }
  return all;
}

double Buffers::expected(std::size_t element) const {
  const std::size_t block = std::max<std::size_t>(subject_.count, 1);
  const auto from = static_cast<int>(element / block);
  const auto mine = static_cast<std::size_t>(rank_);
  switch (subject_.collective) {
    case all_gather:
    case gather:
      return given(from, element % block);
    case all_to_all:
      return given(from, mine * block + element % block);
    case broadcast:
      return given(subject_.root, element);
    default:
      return given(subject_.root, mine * block + element);  // scatter
  }
}

std::uint64_t Buffers::count_wrong(std::uint64_t& bits) const {
  bits = 0xcbf29ce484222325U;
  const bool undefined = subject_.collective == exscan && rank_ == 0;
  if (out_count_ == 0 || undefined) return 0;
  const std::byte* const begin = output_.data() + out_offset_;
  for (std::size_t i = 0; i < out_count_ * size_of(subject_.type); ++i)
    bits = (bits ^ std::to_integer<std::uint64_t>(begin[i])) * 0x100000001b3U;
  const bool reduced = reduces(subject_.collective);
  const std::vector<double> sums = reduced ? combined() : std::vector<double>();
  const std::size_t first = subject_.collective == reduce_scatter ? static_cast<std::size_t>(rank_) * out_count_ : 0;
  std::uint64_t wrong = 0;
  with_type(subject_.type, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> right;
    right.reserve(sums.size());
    for (const double each : sums) right.push_back(number<T>(each));
    for (std::size_t i = 0; i < out_count_; ++i) {
      T wanted = reduced ? right[(first + i) % right.size()] : number<T>(expected(i));
      if (subject_.op == ReduceOp::avg && reduced) {
        // The sum is exact and the division correctly rounded, in the precision that the type is computed in.
        const double mean = combine(ReduceOp::sum, sums[(first + i) % sums.size()], 0) / members_;
        wanted = number<T>(std::is_integral_v<T> ? std::trunc(mean) : mean);
      }
      // By bits: a zero of the other sign is wrong, too.
      if (!std::equal(begin + i * sizeof(T), begin + (i + 1) * sizeof(T), reinterpret_cast<const std::byte*>(&wanted)))
        ++wrong;
    }
  });
  return wrong;
}

}  // namespace lockstep::bench
