// SPDX-License-Identifier: Apache-2.0
// Makes random data of a member, and bounds the error of a result. Data that is only moved or compared must be exact.
// Sums and products of floats may have the error of their roundings. The judge computes the data of the others from the
// seed.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "bench/buffers.hpp"
#include "bench/values.hpp"

namespace lockstep::bench {
namespace {

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

std::uint64_t word_of(std::uint64_t seed, int rank, std::size_t element) {
  return mixed(mixed(mixed(seed) + static_cast<std::uint64_t>(rank)) + 0x9e3779b97f4a7c15U * (element + 1));
}

// Returns a number from -1 to 1 with 24 bits, which is exact in double.
double fraction(std::uint64_t word) { return static_cast<double>(word >> 40U) * 0x1p-23 - 1; }

template <class T>
T random_value(std::uint64_t word) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(word);
  else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    return {static_cast<typename T::value_type>(fraction(word)),
            static_cast<typename T::value_type>(fraction(mixed(word)))};
  else
    return number<T>(fraction(word));
}

template <class T>
double as_double(const T& value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

// Holds half of the distance from 1 to the next number, and the smallest number of full precision.
struct Precision {
  double unit;
  double smallest;
};

Precision precision_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return {0x1p-11, 0x1p-14};
    case DataType::bf16:
      return {0x1p-8, 0x1p-126};
    case DataType::f32:
      return {0x1p-24, 0x1p-126};
    default:
      return {0x1p-53, 0x1p-1022};
  }
}

// Returns the type in which sums were rounded.
DataType type_of(WireFormat wire, DataType type) {
  if (wire == WireFormat::as_is) return type;
  return wire == WireFormat::bf16 ? DataType::bf16 : DataType::f16;
}

bool is_real_float(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
}

struct ValueRange {
  long double value;
  long double off;  // allowed deviation to either side
};

// Returns the range of the combined values of several members, for any order of combination.
ValueRange combined_range(ReduceOp op, const std::vector<double>& values, const Precision& precision) {
  long double value = values.front();
  long double size = std::abs(value);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const long double next = values[i];
    if (op == ReduceOp::prod)
      value *= next;
    else if (op == ReduceOp::min)
      value = std::min(value, next);
    else if (op == ReduceOp::max)
      value = std::max(value, next);
    else
      value += next;
    size = op == ReduceOp::prod ? std::abs(value) : size + std::abs(next);
  }
  if (op == ReduceOp::min || op == ReduceOp::max) return {value, 0};
  const auto roundings = static_cast<long double>(values.size());
  constexpr long double second_order = 1.1L;
  long double off = second_order * roundings * precision.unit * size;
  if (op == ReduceOp::prod) off += roundings * precision.smallest;
  if (op == ReduceOp::avg) return {value / roundings, off / roundings + precision.unit * size / roundings};
  return {value, off};
}

}  // namespace

bool Buffers::takes_random() const {
  if (subject_.collective == Collective::barrier) return false;
  return !reduces(subject_.collective) || (is_real_float(subject_.type) && subject_.op <= ReduceOp::avg);
}

void Buffers::fill_randomly(std::uint64_t seed) {
  std::ranges::fill(output_, std::byte{0x55});
  with_type(subject_.type, [&](auto zero) {
    using T = decltype(zero);
    auto* to = static_cast<T*>(input());
    for (std::size_t i = 0; i < in_count_; ++i) to[i] = random_value<T>(word_of(seed, rank_, i));
  });
}

std::uint64_t Buffers::count_beyond(std::uint64_t seed, WireFormat wire) const {
  const bool undefined = subject_.collective == Collective::exscan && rank_ == 0;
  if (out_count_ == 0 || undefined) return 0;
  constexpr std::size_t looked_at = std::size_t{1}
                                    << 20U;  // a limit of the members' values, so that a large row stays quick
  const std::size_t step = 1 + out_count_ * static_cast<std::size_t>(members_) / looked_at;
  std::uint64_t beyond = 0;
  with_type(subject_.type, [&](auto zero) {
    using T = decltype(zero);
    const auto* const result = reinterpret_cast<const T*>(output_.data() + out_offset_);
    if (!reduces(subject_.collective)) {
      std::size_t at = 0;
      for (const BufferPart& piece : pieces()) {
        for (std::size_t i = 0; i < piece.count; i += step)
          if (result[at + i] != random_value<T>(word_of(seed, piece.from, piece.begin + i))) ++beyond;
        at += piece.count;
      }
      return;
    }
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, std::complex<float>> &&
                  !std::is_same_v<T, std::complex<double>>) {
      const Precision precision = precision_of(type_of(wire, subject_.type));
      std::vector<double> values;
      for (std::size_t i = 0; i < out_count_; i += step) {
        values.clear();
        for (int rank = 0; rank < contributors(); ++rank)
          values.push_back(as_double(random_value<T>(word_of(seed, rank, first_of_result() + i))));
        const ValueRange range = combined_range(subject_.op, values, precision);
        // NaN is never within the range.
        if (!(std::abs(as_double(result[i]) - range.value) <= range.off)) ++beyond;
      }
    }
  });
  return beyond;
}

}  // namespace lockstep::bench
