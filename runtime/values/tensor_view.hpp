// SPDX-License-Identifier: Apache-2.0
// A tensor's memory without its type, for what is not a template. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/types.hpp"

namespace lockstep {

struct TensorView {
  void* data = nullptr;
  DataType type = DataType::f32;
  std::size_t count = 0;
  std::size_t bytes() const { return count * size_of(type); }
  TensorView part(std::size_t first, std::size_t number) const {
    return {static_cast<std::byte*>(data) + first * size_of(type), type, number};
  }
};
// One value: the memory of every replica of this process. Or one replica: of every value.
using TensorViews = std::vector<TensorView>;

}  // namespace lockstep
