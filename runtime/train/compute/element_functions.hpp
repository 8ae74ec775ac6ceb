// SPDX-License-Identifier: Apache-2.0
// Holds the functions of element_wise.hpp for one type and one set of vector instructions.
#pragma once

#include <cstddef>

namespace lockstep::train::compute {

template <class T>
struct ElementFunctions {
  void (*relu)(const T*, T*, std::size_t);
  void (*relu_gradient)(const T*, const T*, T*, std::size_t);
  void (*add_bias)(T*, std::size_t, std::size_t, const T*, bool);
  void (*column_sums)(const T*, std::size_t, std::size_t, T*);
  void (*add_scaled)(T*, const T*, T, std::size_t);
  void (*descend)(T*, const T*, T, std::size_t);
};

}  // namespace lockstep::train::compute
