// SPDX-License-Identifier: Apache-2.0
// Turns users' buffers into addresses and counts. A buffer is any contiguous range (vector, array, span), or a
// StridedBuffer. The code behind this header sees no element types.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "collectives/contiguous.hpp"
#include "collectives/types.hpp"

namespace lockstep {

// Describes `blocks` runs of `block` elements, with `stride` elements between the beginnings of two runs. A column of a
// matrix or a face of a cube is such a buffer. The caller owns the memory. Lockstep packs the data before it sends, and
// unpacks it after it receives.
template <class T>
struct StridedBuffer {
  T* first;
  std::size_t blocks;
  std::size_t stride;
  std::size_t block = 1;
  // Returns the number of elements in all runs, without the gaps.
  std::size_t size() const { return blocks * block; }
};

namespace detail {

// Describes a buffer after its element type has been erased. It does not own the memory.
struct BufferView {
  void* data = nullptr;   // Lockstep never writes to it if the buffer is an input.
  std::size_t count = 0;  // Counts the elements of all runs.
  // Describe strided data: the number of runs, and the elements between their beginnings. One run is contiguous.
  std::size_t blocks = 1;
  std::size_t stride = 0;
  bool contiguous() const { return blocks == 1; }
  // Returns the number of elements from the first to the last, gaps included. Returns nothing if their bytes are more
  // than half of the address space.
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
  // True if runs share elements, so that the buffer cannot be written to.
  bool overlaps_itself() const { return !contiguous() && count > 0 && stride < count / blocks; }
};

// Holds the two parts of an error text: the fact and the remedy.
struct BufferError {
  std::string what;
  std::string remedy;
};
// Returns the error of a buffer that cannot exist, and nothing for a good one. It finds counts and strides that no
// memory holds, a null address with elements, and overlapping runs if `written`.
std::optional<BufferError> buffer_error(const BufferView& data, std::size_t element_bytes, bool written);

template <class T>
inline constexpr bool is_strided = false;
template <class T>
inline constexpr bool is_strided<StridedBuffer<T>> = true;

// Finds the element type of a buffer; the compiler refuses a type that is no buffer.
template <class R>
struct ElementOf {
  static_assert(ContiguousRange<R>,
                "lockstep: a buffer is contiguous memory of known size: std::vector, std::array, std::span (not "
                "std::vector<bool>, not std::list), or lockstep::StridedBuffer");
  using type = ElementIn<R>;
};
template <class T>
struct ElementOf<StridedBuffer<T>> {
  using type = T;
};

// Names the element type of a buffer; it is const if the buffer is read-only.
template <class R>
using QualifiedElement = typename ElementOf<std::remove_cvref_t<R>>::type;
template <class R>
using Element = std::remove_cv_t<QualifiedElement<R>>;

// Makes the compiler refuse elements if their bytes mean nothing in another process.
template <class T>
constexpr void check_element() {
  static_assert(std::is_trivially_copyable_v<T>,
                "lockstep: elements travel byte by byte, so their type must be trivially copyable (no std::string, no "
                "pointers to own memory)");
  static_assert(!std::is_pointer_v<T>,
                "lockstep: a pointer means nothing to another process; send the object that it points to");
}

// Describes a buffer to read. The view is not const, so that input and output have one type.
template <class R>
BufferView input_of(const R& range) {
  using T = Element<R>;
  check_element<T>();
  if constexpr (is_strided<std::remove_cvref_t<R>>) {
    std::size_t all = 0;
    const bool absurd = __builtin_mul_overflow(range.blocks, range.block, &all);
    if (absurd) all = std::numeric_limits<std::size_t>::max();  // buffer_error() refuses it.
    return {const_cast<T*>(range.first), all, range.blocks == 0 ? 1 : range.blocks, range.stride};
  } else {
    return {const_cast<T*>(detail::data_of(range)), detail::size_of(range)};
  }
}

// Describes a buffer to write; the compiler refuses const elements.
template <class R>
BufferView output_of(R&& range) {
  check_element<Element<R>>();
  if constexpr (is_strided<std::remove_cvref_t<R>>) {
    static_assert(!std::is_const_v<QualifiedElement<R>>, "lockstep: the result cannot be written to const elements");
    return input_of(range);
  } else {
    static_assert(!std::is_const_v<ElementIn<std::remove_reference_t<R>>>,
                  "lockstep: the result cannot be written to const elements");
    return {detail::data_of(range), detail::size_of(range)};
  }
}

// Makes the compiler refuse two buffers of different element types.
template <class In, class Out>
constexpr void check_same_element() {
  static_assert(std::is_same_v<Element<In>, Element<Out>>,
                "lockstep: input and output must have the same element type; nothing is converted");
}

}  // namespace detail
}  // namespace lockstep
