// SPDX-License-Identifier: Apache-2.0
// Values to bytes and back, for what members tell each other at set-up. The reader trusts nothing:
// every length is checked against what is left before anything is allocated.
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

Bytes to_bytes(std::string_view text);
std::string to_string(std::span<const std::byte> bytes);

// Two digits a byte; nothing where a letter is none, or half a byte is left.
std::string to_hexadecimal(std::span<const std::byte> bytes);
std::optional<Bytes> from_hexadecimal(std::string_view digits);

// FNV-1a: for comparing and naming, not for security.
std::uint64_t hash(std::span<const std::byte> bytes);

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <Plain T>
  Writer& put(T value) {
    append(&value, sizeof value);
    return *this;
  }
  Writer& put(std::string_view text);
  Writer& put(std::span<const std::byte> bytes);
  Writer& put(const IndexSet& set);

  Bytes take() { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t size);

  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <Plain T>
  T get() {
    T value;
    const auto from = take(sizeof(T));
    std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  template <class T>
  requires std::is_enum_v<T> T get_enum(T last) {
    const T value = get<T>();
    check(value <= last, "an unknown kind");
    return value;
  }
  std::string get_string();
  Bytes get_bytes();
  IndexSet get_set();
  // The length of a list whose elements take at least `least_size` bytes each.
  std::size_t get_count(std::size_t least_size);

  bool done() const { return left_.empty(); }
  void expect_done() const;

 private:
  std::span<const std::byte> take(std::size_t size);
  static void check(bool good, std::string_view what);

  std::span<const std::byte> left_;
};

}  // namespace lockstep
