// SPDX-License-Identifier: Apache-2.0
// Recognizes contiguous memory of known size, which every buffer must be. It replaces <ranges>, whose inclusion would
// cost each program that uses lockstep a fifth of its compile time.
#pragma once

#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

// True for std::vector, std::array, std::span, C arrays, and all types whose iterators are contiguous.
template <class R>
concept ContiguousRange = std::contiguous_iterator<decltype(std::begin(std::declval<R&>()))> && requires(R& range) {
  std::end(range) - std::begin(range);
};

// Returns the address of the first element.
template <ContiguousRange R>
constexpr auto* data_of(R& range) {
  if constexpr (requires { requires std::is_pointer_v<decltype(std::data(range))>; })
    return std::data(range);
  else
    return std::to_address(std::begin(range));
}

// Returns the number of elements. It asks size() first, because the end of a buffer with an absurd count is no address.
template <ContiguousRange R>
constexpr std::size_t size_of(R& range) {
  if constexpr (requires { std::size(range); })
    return static_cast<std::size_t>(std::size(range));
  else
    return static_cast<std::size_t>(std::end(range) - std::begin(range));
}

// Names the element type of a range; const if the range cannot be written.
template <ContiguousRange R>
using ElementIn = std::remove_pointer_t<decltype(detail::data_of(std::declval<R&>()))>;

}  // namespace lockstep::detail
