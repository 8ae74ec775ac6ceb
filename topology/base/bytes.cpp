// SPDX-License-Identifier: Apache-2.0
// Writes and reads the values of set-up messages. Every read is checked, because the bytes come from another process.
#include "topology/base/bytes.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

Bytes to_bytes(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string to_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string to_hexadecimal(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string all;
  all.reserve(2 * bytes.size());
  for (const std::byte each : bytes) {
    all += digits[std::to_integer<std::size_t>(each >> 4U)];
    all += digits[std::to_integer<std::size_t>(each & std::byte{15})];
  }
  return all;
}

std::optional<Bytes> from_hexadecimal(std::string_view hexadecimal) {
  Bytes all;
  const auto digit = [](char letter) {
    constexpr std::string_view digits = "0123456789abcdef";
    return digits.find(letter >= 'A' && letter <= 'F' ? static_cast<char>(letter - 'A' + 'a') : letter);
  };
  for (std::size_t i = 0; i + 1 < hexadecimal.size(); i += 2) {
    const std::size_t high = digit(hexadecimal[i]);
    const std::size_t low = digit(hexadecimal[i + 1]);
    if (high > 15 || low > 15) return std::nullopt;
    all.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return hexadecimal.size() % 2 == 0 ? std::optional(std::move(all)) : std::nullopt;
}

std::uint64_t hash(std::span<const std::byte> bytes) {
  // These are the offset basis and the prime of 64-bit FNV-1a.
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const std::byte each : bytes) {
    value ^= static_cast<std::uint64_t>(each);
    value *= 0x100000001b3U;
  }
  return value;
}

void Writer::append(const void* from, std::size_t size) {
  const std::size_t before = bytes_.size();
  bytes_.resize(before + size);
  if (size > 0) std::memcpy(bytes_.data() + before, from, size);
}

Writer& Writer::put(std::string_view text) {
  put(static_cast<std::uint64_t>(text.size()));
  append(text.data(), text.size());
  return *this;
}

Writer& Writer::put(std::span<const std::byte> bytes) {
  put(static_cast<std::uint64_t>(bytes.size()));
  append(bytes.data(), bytes.size());
  return *this;
}

Writer& Writer::put(const IndexSet& set) {
  put(static_cast<std::uint64_t>(set.ranges().size()));
  for (const IndexRange& range : set.ranges()) put(range.first).put(range.last);
  return *this;
}

std::span<const std::byte> Reader::take(std::size_t size) {
  check(size <= left_.size(), "less than was announced");
  const auto taken = left_.first(size);
  left_ = left_.subspan(size);
  return taken;
}

std::string Reader::get_string() { return to_string(take(get_count(1))); }

Bytes Reader::get_bytes() {
  const auto taken = take(get_count(1));
  return {taken.begin(), taken.end()};
}

IndexSet Reader::get_set() {
  IndexSet set;
  for (std::size_t left = get_count(2 * sizeof(int)); left > 0; --left) {
    const int first = get<int>();
    const int last = get<int>();
    constexpr int largest = 1 << 24;
    check(0 <= first && first <= last && last <= largest, "a range that runs backwards");
    set.insert(IndexSet::range(first, last));
  }
  return set;
}

std::size_t Reader::get_count(std::size_t least_size) {
  const auto count = get<std::uint64_t>();
  check(count <= left_.size() / least_size, "a length beyond the end of the message");
  return static_cast<std::size_t>(count);
}

void Reader::expect_done() const { check(left_.empty(), "more than was announced"); }

void Reader::check(bool good, std::string_view what) {
  if (good) return;
  throw Error(Code::bad_message, text("the bytes hold ", what),
              "run the same build of the program on all nodes (lockstep --version)");
}

}  // namespace lockstep
