// SPDX-License-Identifier: Apache-2.0
// Element-wise passes and sums of columns by each set of vector instructions, against plain loops with the same bits.
#include "tests/runtime/train/vector_targets.hpp"
// Highway's targets are chosen above.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/train/compute/element_wise.hpp"

namespace lockstep::test {
namespace {

using namespace train::compute;

template <class T>
class ElementWise : public testing::Test {
 protected:
  // Calls check(count) by each target, for lengths around those of vectors.
  template <class F>
  static void for_each_length(const F& check) {
    for (const std::int64_t target : vector_targets()) {
      const ForcedTarget forced(target);
      SCOPED_TRACE(hwy::TargetName(target));
      for (std::size_t count = 0; count < 70; ++count) check(count);
      check(1000);
    }
  }

  // Returns numbers with both zeros, NaN and infinity among them.
  static std::vector<T> special_numbers(std::size_t count, unsigned seed) {
    std::vector<T> numbers = random_numbers<T>(count, seed);
    const std::vector<T> special{T{0}, -T{0}, std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                                 -std::numeric_limits<T>::infinity()};
    for (std::size_t i = seed; i < count; i += 3) numbers[i] = special[i % special.size()];
    return numbers;
  }

  static T relu_of(T value) { return value <= 0 ? T{0} : value; }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ElementWise, Types);

TYPED_TEST(ElementWise, ReluKeepsNanAndItsGradientIsThatOfPositiveOutputs) {
  using T = TypeParam;
  this->for_each_length([&](std::size_t count) {
    const std::vector<T> from = this->special_numbers(count, 1);
    const std::vector<T> gradient = this->special_numbers(count, 2);
    std::vector<T> output(count), input_gradient(count), expected(count), expected_gradient(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = this->relu_of(from[i]);
      expected_gradient[i] = from[i] > 0 ? gradient[i] : T{0};
    }
    relu(from.data(), output.data(), count);
    relu_gradient(output.data(), gradient.data(), input_gradient.data(), count);
    ASSERT_EQ(difference(output, expected), "");
    ASSERT_EQ(difference(input_gradient, expected_gradient), "");
  });
}

TYPED_TEST(ElementWise, ColumnsAreSummedInBlocksOf256Rows) {
  using T = TypeParam;
  for (const std::size_t rows : {0U, 1U, 2U, 255U, 256U, 257U, 600U}) {
    this->for_each_length([&](std::size_t columns) {
      if (columns > 70) return;
      const std::vector<T> values = random_numbers<T>(rows * columns, 1);
      std::vector<T> sums(columns, T{77}), expected(columns);
      for (std::size_t j = 0; j < columns; ++j) {
        for (std::size_t row = 0; row < rows;) {
          T block = 0;
          const std::size_t end = std::min<std::size_t>(row + 256, rows);
          for (; row < end; ++row) block += values[row * columns + j];
          expected[j] = end <= 256 ? block : expected[j] + block;
        }
      }
      column_sums(values.data(), rows, columns, sums.data());
      ASSERT_EQ(difference(sums, expected), "") << rows << " x " << columns;
    });
  }
}

}  // namespace
}  // namespace lockstep::test
