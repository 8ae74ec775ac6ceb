// SPDX-License-Identifier: Apache-2.0
// Computes sizes in whole numbers, because a double would round the typed digits.
#include "bench/sizes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>

#include "collectives/spec.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

struct SizeUnit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array units = {SizeUnit{"", 1},
                              SizeUnit{"b", 1},
                              SizeUnit{"k", 1ULL << 10U},
                              SizeUnit{"kib", 1ULL << 10U},
                              SizeUnit{"kb", 1000ULL},
                              SizeUnit{"m", 1ULL << 20U},
                              SizeUnit{"mib", 1ULL << 20U},
                              SizeUnit{"mb", 1000'000ULL},
                              SizeUnit{"g", 1ULL << 30U},
                              SizeUnit{"gib", 1ULL << 30U},
                              SizeUnit{"gb", 1000'000'000ULL},
                              SizeUnit{"t", 1ULL << 40U},
                              SizeUnit{"tib", 1ULL << 40U},
                              SizeUnit{"tb", 1000'000'000'000ULL}};

[[noreturn]] void refuse_size(std::string_view words, std::string_view why) {
  throw Error(Code::usage, text("the size \"", printable(words), "\" ", why),
              "write 8, 4K, 1.5M or 1MiB (K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024) or 1MB (KB, MB, GB, TB "
              "are powers of 1000)");
}

std::string lower(std::string_view words) {
  std::string all;
  for (const char letter : words) all += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return all;
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Removes the digits at the front, and returns them.
std::string_view take_digits(std::string_view& words) {
  const auto end = std::find_if_not(words.begin(), words.end(), is_digit);
  const std::string_view digits = words.substr(0, static_cast<std::size_t>(end - words.begin()));
  words.remove_prefix(digits.size());
  return digits;
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char digit : digits) {
    const auto more = static_cast<std::uint64_t>(digit - '0');
    if (value > (largest - more) / 10) return std::nullopt;
    value = value * 10 + more;
  }
  return value;
}

// Returns the bytes of a fraction of a unit; nothing if it is not whole. Six places keep the product below 2^60.
std::optional<std::uint64_t> part_of(std::uint64_t unit, std::string_view places) {
  while (places.ends_with('0')) places.remove_suffix(1);
  if (places.size() > 6) return std::nullopt;
  std::uint64_t divisor = 1;
  for (std::size_t i = 0; i < places.size(); ++i) divisor *= 10;
  const std::uint64_t product = number_of(places).value_or(0) * unit;
  if (product % divisor != 0) return std::nullopt;
  return product / divisor;
}

// Returns the name without case and separators.
std::string plain(std::string_view name) {
  std::string all = lower(name);
  std::erase_if(all, [](char letter) { return letter == '_' || letter == '-'; });
  return all;
}

}  // namespace

std::uint64_t parse_size(std::string_view words) {
  std::string_view left = trim(words);
  const std::string_view digits = take_digits(left);
  std::string_view places;
  const bool has_point = left.starts_with('.');
  if (has_point) {
    left.remove_prefix(1);
    places = take_digits(left);
  }
  const std::string name = lower(trim(left));
  const auto* const unit =
      std::find_if(units.begin(), units.end(), [&](const SizeUnit& each) { return each.name == name; });
  if (digits.empty() || (has_point && places.empty()) || unit == units.end()) refuse_size(words, "is not understood");
  const auto part = part_of(unit->bytes, places);
  if (!part) refuse_size(words, "is not a whole number of bytes");
  const auto whole = number_of(digits);
  if (!whole || *whole > (largest - *part) / unit->bytes) refuse_size(words, "is more than 64 bits can count");
  return *whole * unit->bytes + *part;
}

std::vector<std::uint64_t> parse_size_list(std::string_view words) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& each : split(words, ',')) {
    if (trim(each).empty())
      throw Error(Code::usage, text("the sizes \"", printable(words), "\" have an empty place"), "write 8,4K,1M");
    if (sizes.size() == most_sizes)
      throw Error(Code::usage, text("more than ", most_sizes, " sizes"), "measure them in several runs");
    sizes.push_back(parse_size(each));
  }
  return sizes;
}

std::vector<std::uint64_t> sizes_of(const Sweep& sweep) {
  const auto refuse = [](std::string_view what, std::string_view remedy) { throw Error(Code::usage, what, remedy); };
  if (sweep.end < sweep.begin) {
    refuse(text("sizes from ", sweep.begin, " to ", sweep.end, " bytes"),
           "the last size (-e) is at least the first (-b)");
  }
  std::vector<std::uint64_t> sizes;
  if (sweep.factor) {
    if (*sweep.factor < 2) refuse(text("a factor of ", *sweep.factor, " between sizes"), "-f takes 2 or more");
    if (sweep.begin == 0) refuse("sizes from 0 bytes on by a factor", "begin (-b) at 1 or more, or add a step (-i)");
    for (std::uint64_t size = sweep.begin;; size *= *sweep.factor) {
      sizes.push_back(size);
      if (size > sweep.end / *sweep.factor) return sizes;
    }
  }
  if (sweep.step == 0) refuse("a step of 0 bytes between sizes", "-i takes 1 or more");
  const std::uint64_t steps = (sweep.end - sweep.begin) / sweep.step;
  if (steps >= most_sizes) {
    refuse(text("more than ", most_sizes, " sizes from ", sweep.begin, " to ", sweep.end, " bytes by ", sweep.step),
           "take a larger step (-i), or a factor (-f)");
  }
  for (std::uint64_t i = 0; i <= steps; ++i) sizes.push_back(sweep.begin + i * sweep.step);
  return sizes;
}

std::optional<std::string_view> our_collective(std::string_view name) {
  std::string word = plain(name);
  if (word.ends_with("perf")) word.resize(word.size() - 4);
  if (word == "bcast") return to_string(Collective::broadcast);
  const auto found = parse_collective(word);
  return found ? std::optional(to_string(*found)) : std::nullopt;
}

std::optional<std::string_view> our_type(std::string_view name) {
  const std::string word = plain(name);
  if (word.starts_with("fp8") || word.starts_with("f8") || word.starts_with("float8")) {
    throw Error(Code::usage, text("there are no 8-bit floats such as \"", printable(name), "\""),
                "take f16 or bf16; u8 moves the same bytes where nothing is reduced");
  }
  const auto found = parse_data_type(word);
  return found ? std::optional(to_string(*found)) : std::nullopt;
}

std::optional<std::string_view> our_op(std::string_view name) {
  if (plain(name) == "mulsum") return to_string(ReduceOp::premul_sum);
  const auto found = parse_reduce_op(name);
  return found ? std::optional(to_string(*found)) : std::nullopt;
}

}  // namespace lockstep::bench
