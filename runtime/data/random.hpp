// SPDX-License-Identifier: Apache-2.0
// Draws numbers by their position: the same key and counter always give the same number, on every machine. Pure.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>

namespace lockstep::data {

// Identifies a sequence of numbers.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

// Returns a number for a counter. It is Philox 4x32 with 10 rounds (Salmon et al., 2011).
inline std::uint64_t random_bits(const RandomKey& key, std::uint64_t counter) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57;
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); };
  std::array<std::uint32_t, 4> words{low(counter), high(counter), low(key.stream), high(key.stream)};
  std::uint32_t key0 = low(key.seed);
  std::uint32_t key1 = high(key.seed);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * words[0];
    const std::uint64_t product1 = multiplier1 * words[2];
    words = {high(product1) ^ words[1] ^ key0, low(product1), high(product0) ^ words[3] ^ key1, low(product0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return static_cast<std::uint64_t>(words[1]) << 32U | words[0];
}

// Returns a number below `limit`, which must be positive and below 2^32. Its bias is below limit / 2^64.
inline std::uint64_t random_below(const RandomKey& key, std::uint64_t counter, std::uint64_t limit) {
  const std::uint64_t bits = random_bits(key, counter);
  const std::uint64_t high = (bits >> 32U) * limit;
  const std::uint64_t low = (bits & 0xFFFFFFFFU) * limit;
  return (high + (low >> 32U)) >> 32U;
}

// Returns a seed that no other call of the program gets, nor another run of it.
inline std::uint64_t fresh_seed() {
  static const std::uint64_t program = std::uint64_t{std::random_device()()} << 32U | std::random_device()();
  static std::atomic<std::uint64_t> calls = 0;
  return random_bits({program, 0}, calls.fetch_add(1, std::memory_order_relaxed));
}

// Permutes the numbers below `size` without memory. A Feistel network permutes the next power of four; a number beyond
// `size` is permuted again until it is below.
class Permutation {
 public:
  // `size` must be positive.
  Permutation(RandomKey key, std::uint64_t size) : size_(size) {
    const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
    half_ = bits < 2 ? 1U : (bits + 1U) / 2U;
    for (std::size_t round = 0; round < round_keys_.size(); ++round) round_keys_[round] = random_bits(key, round);
  }
  // Returns the number at a place.
  std::uint64_t operator()(std::uint64_t place) const {
    std::uint64_t number = place;
    do number = encrypted(number);
    while (number >= size_);
    return number;
  }

 private:
  std::uint64_t encrypted(std::uint64_t number) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = number >> half_;
    std::uint64_t right = number & mask;
    for (const std::uint64_t key : round_keys_) {
      const std::uint64_t mixed = mix(right ^ key);
      left ^= mixed & mask;
      std::swap(left, right);
    }
    return left << half_ | right;
  }
  // Mixes bits as splitmix64 does (Steele et al., 2014).
  static std::uint64_t mix(std::uint64_t value) {
    value = (value ^ value >> 30U) * 0xBF58476D1CE4E5B9U;
    value = (value ^ value >> 27U) * 0x94D049BB133111EBU;
    return value ^ value >> 31U;
  }

  std::uint64_t size_;
  unsigned half_;
  std::array<std::uint64_t, 6> round_keys_{};
};

}  // namespace lockstep::data
