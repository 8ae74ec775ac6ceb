// SPDX-License-Identifier: Apache-2.0
// Describes a tensor's memory without its static type, for functions that are no templates. Pure.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "collectives/types.hpp"

namespace lockstep {

// Refers to `count` elements that another object owns, in host or GPU memory.
struct TensorView {
  void* data = nullptr;
  DataType type = DataType::f32;
  std::size_t count = 0;
  std::size_t bytes() const { return count * size_of(type); }
  // Returns a view of `number` elements from element `first` on.
  TensorView part(std::size_t first, std::size_t number) const {
    return {static_cast<std::byte*>(data) + first * size_of(type), type, number};
  }
};
// Holds the memory of one value at every replica of this process, or of every value at one replica.
using TensorViews = std::vector<TensorView>;

namespace detail {

// Holds for memory whose type is known at run time only, as an AnyTensor's.
template <class X>
concept HasView = requires(std::remove_cvref_t<X>& value) {
  { value.view() } -> std::same_as<TensorView>;
};

}  // namespace detail

}  // namespace lockstep
