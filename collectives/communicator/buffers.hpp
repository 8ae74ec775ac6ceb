// SPDX-License-Identifier: Apache-2.0
// What people hand in as data: any contiguous range (vector, array, span), or a strided one. After this, only
// addresses and counts are left.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

#include "collectives/types.hpp"

namespace lockstep {

// `blocks` runs of `block` elements, whose beginnings lie `stride` elements apart: a column of a matrix, a face of a
// cube. Packed before it is sent, unpacked after it has come.
template <class T>
struct StridedBuffer {
  T* first;
  std::size_t blocks;
  std::size_t stride;
  std::size_t block = 1;
  std::size_t size() const { return blocks * block; }
};

namespace detail {

struct BufferView {
  void* data = nullptr;  // of an input never written
  std::size_t count = 0;
  // Of strided data; in elements. One run: contiguous.
  std::size_t blocks = 1;
  std::size_t stride = 0;
  bool contiguous() const { return blocks == 1; }
  // Elements from the first to behind the last; nothing if that is more than can be counted in bytes.
  std::optional<std::size_t> extent(std::size_t element_bytes) const {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
    std::size_t elements = count;
    if (!contiguous() && count > 0) {
      if (__builtin_mul_overflow(blocks - 1, stride, &elements) ||
          __builtin_add_overflow(elements, count / blocks, &elements))
        return std::nullopt;
    }
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(elements, element_bytes, &bytes) || bytes > most) return std::nullopt;
    return elements;
  }
  bool overlaps_itself() const { return !contiguous() && count > 0 && stride < count / blocks; }
};

// A sentence in two parts: what is wrong, and how to mend it.
struct BufferError {
  std::string what;
  std::string mend;
};
// About data that is read, or written into: counts and strides that no memory holds, runs that overlap where they are
// written, no address.
std::optional<BufferError> buffer_error(const BufferView& data, std::size_t element_bytes, bool written);

template <class T>
inline constexpr bool is_strided = false;
template <class T>
inline constexpr bool is_strided<StridedBuffer<T>> = true;

template <class R>
struct ElementOf {
  static_assert(std::ranges::contiguous_range<R> && std::ranges::sized_range<R>,
                "lockstep: a buffer is contiguous memory of known size: std::vector, std::array, std::span (not "
                "std::vector<bool>, not std::list), or lockstep::StridedBuffer");
  using type = std::remove_reference_t<std::ranges::range_reference_t<R>>;
};
template <class T>
struct ElementOf<StridedBuffer<T>> {
  using type = T;
};

// Element type of a buffer; const where it cannot be written.
template <class R>
using QualifiedElement = typename ElementOf<std::remove_cvref_t<R>>::type;
template <class R>
using Element = std::remove_cv_t<QualifiedElement<R>>;

template <class T>
constexpr void check_element() {
  static_assert(std::is_trivially_copyable_v<T>,
                "lockstep: elements travel byte by byte, so their type must be trivially copyable (no std::string, no "
                "pointers to own memory)");
  static_assert(!std::is_pointer_v<T>, "lockstep: a pointer means nothing to another process; send what it points to");
}

template <class R>
BufferView input_of(const R& range) {
  using T = Element<R>;
  check_element<T>();
  if constexpr (is_strided<std::remove_cvref_t<R>>) {
    std::size_t all = 0;
    const bool absurd = __builtin_mul_overflow(range.blocks, range.block, &all);
    if (absurd) all = std::numeric_limits<std::size_t>::max();  // for whoever checks counts
    return {const_cast<T*>(range.first), all, range.blocks == 0 ? 1 : range.blocks, range.stride};
  } else {
    return {const_cast<T*>(std::ranges::data(range)), std::ranges::size(range)};
  }
}

template <class R>
BufferView output_of(R&& range) {
  check_element<Element<R>>();
  if constexpr (is_strided<std::remove_cvref_t<R>>) {
    static_assert(!std::is_const_v<QualifiedElement<R>>, "lockstep: the result cannot be written to const elements");
    return input_of(range);
  } else {
    static_assert(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>,
                  "lockstep: the result cannot be written to const elements");
    return {std::ranges::data(range), std::ranges::size(range)};
  }
}

template <class In, class Out>
constexpr void check_same_element() {
  static_assert(std::is_same_v<Element<In>, Element<Out>>,
                "lockstep: input and output must have the same element type; nothing is converted");
}

}  // namespace detail
}  // namespace lockstep
