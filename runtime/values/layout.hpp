// SPDX-License-Identifier: Apache-2.0
// Computes a fingerprint of a value's structure, for members that combine values. It covers the shapes of tensors, the
// lengths of lists and the keys of maps. Pure.
#pragma once

#include <string_view>

#include "collectives/contiguous.hpp"
#include "collectives/fingerprints.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep::detail {

// Holds for tensors.
template <class T>
concept HasShape = requires(const T& value) {
  value.shape().lengths();
};

// Adds a key of a map, if all processes of a build have the same bits for it.
template <class K>
void add_key(Fingerprint& print, const K& key) {
  if constexpr (std::is_convertible_v<const K&, std::string_view>)
    print.add(std::string_view(key));
  else if constexpr (std::is_integral_v<K> || std::is_enum_v<K>)
    print.add(static_cast<std::uint64_t>(key));
}

// Adds a structure or a leaf, and counts the leaves.
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
  } else if constexpr (OptionalLike<S>) {
    print.add(value.has_value() ? 1U : 0U);
    if (value) add_layout(print, *value, leaves);
  } else {
    ++leaves;
    if constexpr (HasView<S>) print.add(static_cast<std::uint64_t>(value.view().type));
    if constexpr (HasShape<S>) {
      for (const std::int64_t length : value.shape().lengths()) print.add(static_cast<std::uint64_t>(length));
    } else if constexpr (ContiguousRange<S>) {
      print.add(size_of(value));
    }
  }
}

// Returns the fingerprint. Zero stands for numbers, memory, and tensors of one axis, which their count describes.
template <class S>
std::uint64_t layout_of_value(S& value) {
  if constexpr (!Structure<S>) {
    if constexpr (HasShape<S>) {
      if (value.shape().rank() <= 1 && !HasView<S>) return 0;
    } else {
      return 0;
    }
  }
  Fingerprint print;
  std::size_t leaves = 0;
  add_layout(print, value, leaves);
  return layout_of(print.value(), leaves);
}

}  // namespace lockstep::detail
