// SPDX-License-Identifier: Apache-2.0
// Prints the elements of data sets as pipelines.txt has them, and compares what follows after each position.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace lockstep::test {

using Number = std::int64_t;
using Array = Tensor<std::int64_t>;

template <class T>
requires std::is_arithmetic_v<T> std::string printed(T number) { return text(number); }
template <class T>
std::string printed(const TensorSpan<const T>& array) {
  if (array.shape().rank() == 0) return printed(array[0]);
  std::string all = "[";
  for (std::int64_t i = 0; i < array.shape()[0]; ++i) {
    const TensorShape inner = array.shape().without(0);
    const T* const row = array.data() + static_cast<std::size_t>(i) * inner.count();
    all += text(i == 0 ? "" : " ", printed(TensorSpan<const T>(inner, row)));
  }
  return all + "]";
}
template <class T>
std::string printed(const Tensor<T>& array) {
  return printed(TensorSpan<const T>(array.shape(), array.data()));
}
template <class... E>
std::string printed(const std::tuple<E...>& element) {
  std::vector<std::string> all;
  std::apply([&](const auto&... each) { (all.push_back(printed(each)), ...); }, element);
  return "(" + join(all, " ") + ")";
}

template <class E>
std::vector<std::string> rest_of(DatasetIterator<E>& iterator, std::size_t most = 1'000'000) {
  std::vector<std::string> all;
  E element{};
  while (all.size() < most && iterator.next(element)) all.push_back(printed(element));
  return all;
}

// Saves the position after each number of elements, and goes on there with another iterator.
template <class E>
void expect_positions(const Dataset<E>& data, const std::vector<std::string>& elements) {
  for (std::size_t read = 0; read <= elements.size(); ++read) {
    DatasetIterator<E> first = data.open();
    EXPECT_EQ(rest_of(first, read).size(), read);
    DatasetIterator<E> second = data.open();
    rest_of(second, read / 2);  // It goes to the position from anywhere.
    EXPECT_NO_THROW(second.seek(first.position())) << "after " << read;
    EXPECT_EQ(rest_of(second), std::vector(elements.begin() + static_cast<std::ptrdiff_t>(read), elements.end()))
        << "after " << read;
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace lockstep::test
