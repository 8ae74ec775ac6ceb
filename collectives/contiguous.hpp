// SPDX-License-Identifier: Apache-2.0
// Recognizes contiguous memory of known size, which every buffer must be. It replaces <ranges>, whose inclusion would
// cost each program that uses lockstep a fifth of its compile time.
#pragma once

#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

// True if std::data() and std::size() work for the type.
template <class R>
concept HasData = requires(R& range) {
  requires std::is_object_v<std::remove_pointer_t<decltype(std::data(range))>>;
  std::size(range);
};

// True if the type has contiguous iterators and a known end.
template <class R>
concept HasContiguousIterators = std::contiguous_iterator<decltype(std::begin(std::declval<R&>()))> &&
    requires(R& range) {
  std::end(range) - std::begin(range);
};

// True for std::vector, std::array, std::span, C arrays, and types with data() and size() or with contiguous iterators.
template <class R>
concept ContiguousRange = HasData<R> || HasContiguousIterators<R>;

// Returns the address of the first element.
template <ContiguousRange R>
constexpr auto* data_of(R& range) {
  if constexpr (HasData<R>)
    return std::data(range);
  else
    return std::to_address(std::begin(range));
}

// Returns the number of elements.
template <ContiguousRange R>
constexpr std::size_t size_of(R& range) {
  if constexpr (HasData<R>)
    return static_cast<std::size_t>(std::size(range));
  else
    return static_cast<std::size_t>(std::end(range) - std::begin(range));
}

// Names the element type of a range; const if the range cannot be written.
template <ContiguousRange R>
using ElementIn = std::remove_pointer_t<decltype(data_of(std::declval<R&>()))>;

}  // namespace lockstep::detail
