// SPDX-License-Identifier: Apache-2.0
// What members must have alike of a value that they combine, beside the numbers in it: the shapes of its tensors, the
// lengths of its lists, the keys of its maps. Pure.
#pragma once

#include <ranges>
#include <string_view>

#include "collectives/fingerprints.hpp"
#include "runtime/values/structure.hpp"

namespace lockstep::detail {

template <class T>
concept HasShape = requires(const T& value) {
  value.shape().lengths();
};

// Adds a key of a map where all processes of a build see the same bits of it.
template <class K>
void add_key(Fingerprint& print, const K& key) {
  if constexpr (std::is_convertible_v<const K&, std::string_view>)
    print.add(std::string_view(key));
  else if constexpr (std::is_integral_v<K> || std::is_enum_v<K>)
    print.add(static_cast<std::uint64_t>(key));
}

// Adds a structure, or a leaf of one; counts the leaves.
template <class S>
void add_layout(Fingerprint& print, S& value, std::size_t& leaves) {
  const auto add_each = [&](auto&... each) {
    print.add(sizeof...(each));
    (add_layout(print, each, leaves), ...);
  };
  if constexpr (HasFields<S>) {
    std::apply(add_each, Fields<std::remove_const_t<S>>::of(value));
  } else if constexpr (TupleLike<S>) {
    std::apply(add_each, value);
  } else if constexpr (ListLike<S>) {
    print.add(value.size());
    for (auto& each : value) add_layout(print, each, leaves);
  } else if constexpr (MapLike<S>) {
    print.add(value.size());
    for (auto& [key, each] : value) {
      add_key(print, key);
      add_layout(print, each, leaves);
    }
  } else {
    ++leaves;
    if constexpr (HasShape<S>) {
      for (const std::int64_t length : value.shape().lengths()) print.add(static_cast<std::uint64_t>(length));
    } else if constexpr (std::ranges::sized_range<S>) {
      print.add(std::ranges::size(value));
    }
  }
}

// 0 for what a count alone tells: numbers, memory, tensors of one axis.
template <class S>
std::uint64_t layout_of_value(S& value) {
  if constexpr (!Structure<S>) {
    if constexpr (!HasShape<S>)
      return 0;
    else if (value.shape().rank() <= 1)
      return 0;
  }
  Fingerprint print;
  std::size_t leaves = 0;
  add_layout(print, value, leaves);
  return layout_of(print.value(), leaves);
}

}  // namespace lockstep::detail
