// SPDX-License-Identifier: Apache-2.0
// Converts values to bytes and back, for the messages that members exchange at set-up. The reader trusts nothing: it
// checks every length against the bytes left before it allocates.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "topology/base/index_set.hpp"

namespace lockstep {

using Bytes = std::vector<std::byte>;

// Copy the bytes of a text, and the reverse. Neither checks an encoding.
Bytes to_bytes(std::string_view text);
std::string to_string(std::span<const std::byte> bytes);

// Write two digits for each byte, and the reverse. from_hexadecimal() takes both cases. It returns nothing if a
// letter is no digit, or if the count of digits is odd.
std::string to_hexadecimal(std::span<const std::byte> bytes);
std::optional<Bytes> from_hexadecimal(std::string_view digits);

// Returns the 64-bit FNV-1a hash. It is for comparing and naming, not for security.
std::uint64_t hash(std::span<const std::byte> bytes);

// Names the types that can be copied as they lie in memory: numbers, booleans and enumerations.
template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Appends values to a buffer that it owns. Numbers keep the host's byte order, so reader and writer must agree on
// it. Texts, bytes and sets carry their length first.
class Writer {
 public:
  template <Plain T>
  Writer& put(T value) {
    append(&value, sizeof value);
    return *this;
  }
  // Append the length, and then the characters, bytes or ranges.
  Writer& put(std::string_view text);
  Writer& put(std::span<const std::byte> bytes);
  Writer& put(const IndexSet& set);

  // Returns the bytes written so far, and leaves the writer empty.
  Bytes take() { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t size);

  Bytes bytes_;
};

// Reads values in the order in which a Writer put them. It refers to the caller's bytes, which must outlive it.
// Every get throws Error bad_message if too few bytes are left.
class Reader {
 public:
  // Reads these bytes, which must outlive the reader.
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <Plain T>
  T get() {
    const auto from = take(sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      return from.front() != std::byte{0};  // a bool of any other byte than 0 or 1 would be undefined
    } else {
      T value;
      std::memcpy(&value, from.data(), sizeof(T));
      return value;
    }
  }
  // Throws Error bad_message for a value above `last`, which must be the enumeration's last one.
  template <class T>
  requires std::is_enum_v<T> T get_enum(T last) {
    const T value = get<T>();
    check(value <= last, "an unknown kind");
    return value;
  }
  std::string get_string();
  Bytes get_bytes();
  // Throws Error bad_message if a range runs backwards, is negative, or goes beyond 2^24.
  IndexSet get_set();
  // Returns the length of a list of elements that take at least `least_size` bytes each. Throws Error bad_message if
  // they cannot fit into the bytes left.
  std::size_t get_count(std::size_t least_size);

  // True if all bytes have been read.
  bool done() const { return left_.empty(); }
  // Throws Error bad_message if bytes are left.
  void expect_done() const;

 private:
  std::span<const std::byte> take(std::size_t size);
  static void check(bool good, std::string_view what);

  std::span<const std::byte> left_;
};

}  // namespace lockstep
