// SPDX-License-Identifier: Apache-2.0
// Prints numbers and arrays as Python and NumPy do, so that logs can be compared. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/types.hpp"
#include "runtime/values/tensor_shape.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Return the shortest text that reads back as the same number: "1.0", "0.1", "1e-05", "nan".
std::string float_words(float value);
std::string float_words(double value);

// Returns the text of a number on its own: "True", "1.0", "(1.0+2.0j)".
template <class T>
std::string scalar_words(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "True" : "False";
  else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return float_words(static_cast<float>(value));
  else if constexpr (ComplexOf<T, float> || ComplexOf<T, double>)
    return text('(', float_words(value.real()), value.imag() < 0 ? "" : "+", float_words(value.imag()), "j)");
  else if constexpr (std::is_floating_point_v<T>)
    return float_words(value);
  else
    return text(static_cast<std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>>(value));
}

// Returns the text of a number in an array: "1." instead of "1.0".
template <class T>
std::string element_words(const T& value) {
  std::string words = scalar_words(value);
  if (!std::is_integral_v<T> && words.ends_with(".0")) words.pop_back();
  return words;
}

// Returns an array in brackets by axis. Of more than 1000 elements it shows the first three and last three along each
// axis.
std::string array_words(const TensorShape& shape, const std::function<std::string(std::size_t)>& element,
                        std::string_view separator = ", ");
// Returns NumPy's name of the type, such as "float32" for f32.
std::string numpy_name(DataType type);
// Returns TensorFlow's text of a tensor: "tf.Tensor([1. 2.], shape=(2,), dtype=float32)".
std::string tensor_words(const TensorShape& shape, DataType type,
                         const std::function<std::string(std::size_t)>& element);

}  // namespace lockstep::detail
