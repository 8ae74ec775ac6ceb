// SPDX-License-Identifier: Apache-2.0
// Encodes the values of remote calls as bytes, with a text of their types. The receiver compares the types before it
// reads the bytes. The reader checks everything. Pure.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "runtime/values/tensor.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::rpc {

// Encodes a type. A specialisation has name(), put(Writer&, value), get(Reader&), and `least`, the minimum number of
// bytes of a value.
template <class T>
struct Codec;

// Holds for types that remote functions can take and return.
template <class T>
concept Sendable = requires(Writer& writer, Reader& reader, const T& value) {
  { Codec<T>::name() } -> std::convertible_to<std::string>;
  Codec<T>::put(writer, value);
  { Codec<T>::get(reader) } -> std::same_as<T>;
};

// True for the number types of collectives, without bool.
template <class T>
inline constexpr bool is_number = data_type_of<T> != DataType::opaque && !std::is_same_v<T, bool>;

// Encodes a number by its bytes. Both sides have the same byte order.
template <class T>
requires is_number<T>
struct Codec<T> {
  static constexpr std::size_t least = sizeof(T);
  static std::string name() { return std::string(to_string(data_type_of<T>)); }
  static void put(Writer& writer, T value) {
    for (const std::byte each : std::as_bytes(std::span(&value, 1))) writer.put(each);
  }
  static T get(Reader& reader) {
    std::array<std::byte, sizeof(T)> bytes;
    for (std::byte& each : bytes) each = reader.get<std::byte>();
    return std::bit_cast<T>(bytes);
  }
};

template <>
struct Codec<bool> {
  static constexpr std::size_t least = 1;
  static std::string name() { return "bool"; }
  static void put(Writer& writer, bool value) { writer.put(static_cast<std::uint8_t>(value)); }
  static bool get(Reader& reader) { return reader.get<std::uint8_t>() != 0; }
};

// Encodes a string by its length, in eight bytes, and its bytes.
template <>
struct Codec<std::string> {
  static constexpr std::size_t least = 8;
  static std::string name() { return "string"; }
  static void put(Writer& writer, const std::string& value) { writer.put(std::string_view(value)); }
  static std::string get(Reader& reader) { return reader.get_string(); }
};

// Encodes a bool, and the value if there is one.
template <Sendable T>
struct Codec<std::optional<T>> {
  static constexpr std::size_t least = 1;
  static std::string name() { return text("optional<", Codec<T>::name(), '>'); }
  static void put(Writer& writer, const std::optional<T>& value) {
    Codec<bool>::put(writer, value.has_value());
    if (value) Codec<T>::put(writer, *value);
  }
  static std::optional<T> get(Reader& reader) {
    return Codec<bool>::get(reader) ? std::optional(Codec<T>::get(reader)) : std::nullopt;
  }
};

// Encodes the number of elements, and each element.
template <Sendable T>
requires(!is_number<T>) struct Codec<std::vector<T>> {
  static constexpr std::size_t least = 8;
  static std::string name() { return text("vector<", Codec<T>::name(), '>'); }
  static void put(Writer& writer, const std::vector<T>& value) {
    writer.put(static_cast<std::uint64_t>(value.size()));
    for (const T& each : value) Codec<T>::put(writer, each);
  }
  static std::vector<T> get(Reader& reader) {
    static_assert(Codec<T>::least > 0, "lockstep: a vector of elements without bytes is a count: send that number");
    std::vector<T> value;  // Grows while it is read, because the announced number may exceed the bytes.
    for (std::size_t left = reader.get_count(Codec<T>::least); left > 0; --left) value.push_back(Codec<T>::get(reader));
    return value;
  }
};
// Encodes numbers as one block of bytes. get() throws Error bad_message for a broken element.
template <class T>
requires is_number<T>
struct Codec<std::vector<T>> {
  static constexpr std::size_t least = 8;
  static std::string name() { return text("vector<", Codec<T>::name(), '>'); }
  static void put(Writer& writer, const std::vector<T>& value) { writer.put(std::as_bytes(std::span(value))); }
  static std::vector<T> get(Reader& reader) {
    const Bytes bytes = reader.get_bytes();
    if (bytes.size() % sizeof(T) != 0)
      throw Error(Code::bad_message, text(bytes.size(), " bytes are not a whole number of ", name()));
    std::vector<T> value(bytes.size() / sizeof(T));
    if (!value.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
    return value;
  }
};

// Encodes the lengths of the axes, and the elements. get() throws Error bad_message if they don't fit.
template <class T>
requires is_number<T>
struct Codec<Tensor<T>> {
  static constexpr std::size_t least = 16;
  static std::string name() { return text("Tensor<", Codec<T>::name(), '>'); }
  static void put(Writer& writer, const Tensor<T>& value) {
    Codec<std::vector<std::int64_t>>::put(writer, value.shape().lengths());
    writer.put(std::as_bytes(value.span()));
  }
  static Tensor<T> get(Reader& reader) {
    const auto lengths = Codec<std::vector<std::int64_t>>::get(reader);
    const std::vector<T> values = Codec<std::vector<T>>::get(reader);
    std::size_t count = 1;
    for (const std::int64_t length : lengths) {
      if (length < 0 || __builtin_mul_overflow(count, static_cast<std::size_t>(length), &count))
        throw Error(Code::bad_message, text("a tensor with an axis of length ", length));
    }
    if (count != values.size())
      throw Error(Code::bad_message, text("a tensor of ", count, " elements with ", values.size()));
    return Tensor<T>(TensorShape(lengths), std::span<const T>(values));
  }
};

// Encodes the arguments of a call, one after the other. Its name is "(i32, string)".
template <Sendable... T>
struct Codec<std::tuple<T...>> {
  static constexpr std::size_t least = (std::size_t{0} + ... + Codec<T>::least);
  static std::string name() {
    std::string all;
    ((all += text(all.empty() ? "" : ", ", Codec<T>::name())), ...);
    return text('(', all, ')');
  }
  static void put(Writer& writer, const std::tuple<T...>& value) {
    std::apply([&](const T&... each) { (Codec<T>::put(writer, each), ...); }, value);
  }
  // Braces evaluate from left to right.
  static std::tuple<T...> get(Reader& reader) { return {Codec<T>::get(reader)...}; }
};
template <Sendable A, Sendable B>
struct Codec<std::pair<A, B>> {
  static constexpr std::size_t least = Codec<A>::least + Codec<B>::least;
  static std::string name() { return Codec<std::tuple<A, B>>::name(); }
  static void put(Writer& writer, const std::pair<A, B>& value) {
    Codec<A>::put(writer, value.first);
    Codec<B>::put(writer, value.second);
  }
  static std::pair<A, B> get(Reader& reader) { return {Codec<A>::get(reader), Codec<B>::get(reader)}; }
};

// Returns the bytes of a value, with the text of its type before them.
template <Sendable T>
Bytes encode(const T& value) {
  Writer writer;
  writer.put(std::string_view(Codec<T>::name()));
  Codec<T>::put(writer, value);
  return writer.take();
}
// Returns the value. Throws Error usage, naming both types, if another type was sent, and bad_message for malformed
// bytes.
template <Sendable T>
T decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const std::string given = reader.get_string();
  if (given != Codec<T>::name())
    throw Error(Code::usage, text(Codec<T>::name(), " is wanted, and ", printable(given), " was given"),
                "let both sides have the same types; 1 is an i32, 1.0 an f64, 1.0F an f32");
  T value = Codec<T>::get(reader);
  reader.expect_done();
  return value;
}

}  // namespace lockstep::rpc
