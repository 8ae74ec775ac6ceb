// SPDX-License-Identifier: Apache-2.0
// Products of matrices by each set of vector instructions, against loops that round as the header promises.
#include "tests/runtime/train/vector_targets.hpp"
// Highway's targets are chosen above.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <ostream>

#include "runtime/train/compute/matrix_product.hpp"

namespace lockstep::test {
namespace {

using namespace train::compute;

// Is a drawn product.
struct ProductCase {
  ProductShape shape;
  bool left_is_transposed = false;
  bool right_is_transposed = false;
  std::size_t gap = 0;  // between rows
  bool adds = false;
  bool has_bias = false;
  bool relu = false;
};

std::ostream& operator<<(std::ostream& out, const ProductCase& given) {
  return out << given.shape.rows << " x " << given.shape.columns << " x " << given.shape.depth << ", transposed "
             << given.left_is_transposed << given.right_is_transposed << ", gap " << given.gap << ", adds "
             << given.adds << ", bias " << given.has_bias << ", relu " << given.relu;
}

// Lies in memory as the case says.
template <class T>
struct Matrix {
  Matrix(std::size_t rows, std::size_t columns, bool is_transposed, std::size_t gap, unsigned seed)
      : transposed(is_transposed),
        stride((is_transposed ? rows : columns) + gap),
        data(random_numbers<T>((is_transposed ? columns : rows) * stride, seed)) {}
  T& at(std::size_t i, std::size_t j) { return transposed ? data[j * stride + i] : data[i * stride + j]; }
  ProductOperand<T> operand() const { return {data.data(), stride, transposed}; }

  bool transposed;
  std::size_t stride;
  std::vector<T> data;
};

template <class T>
struct ProductData {
  explicit ProductData(const ProductCase& given)
      : left(given.shape.rows, given.shape.depth, given.left_is_transposed, given.gap, 1),
        right(given.shape.depth, given.shape.columns, given.right_is_transposed, given.gap, 2),
        target(given.shape.rows, given.shape.columns, false, given.gap, 3),
        bias(random_numbers<T>(given.shape.columns, 4)) {}

  ProductEnding<T> ending(const ProductCase& given) const {
    return {given.adds, given.has_bias ? bias.data() : nullptr, given.relu};
  }

  Matrix<T> left, right, target;
  std::vector<T> bias;
};

// Adds in the order that the header promises. Gaps keep their numbers.
template <class T>
std::vector<T> expected_product(const ProductCase& given, ProductData<T> data, bool fused) {
  for (std::size_t i = 0; i < given.shape.rows; ++i) {
    for (std::size_t j = 0; j < given.shape.columns; ++j) {
      T& sum = data.target.at(i, j);
      if (!given.adds) sum = 0;
      for (std::size_t k = 0; k < given.shape.depth;) {
        T block = 0;
        const std::size_t end = std::min(k + 256, given.shape.depth);
        const bool is_first = k == 0 && !given.adds;
        for (; k < end; ++k) block = multiply_add(fused, data.left.at(i, k), data.right.at(k, j), block);
        sum = is_first ? block : sum + block;
      }
      if (given.has_bias) sum += data.bias[j];
      if (given.relu && sum <= 0) sum = 0;
    }
  }
  return data.target.data;
}

template <class T>
std::vector<T> product_of(const ProductCase& given, ProductData<T> data) {
  matrix_product(given.shape, data.left.operand(), data.right.operand(),
                 ProductTarget<T>{data.target.data.data(), data.target.stride}, data.ending(given));
  return data.target.data;
}

template <class T>
void expect_promised_bits(const ProductCase& given) {
  const ProductData<T> data(given);
  for (const bool fused : {false, true}) {
    const std::vector<T> expected = expected_product(given, data, fused);
    for (const std::int64_t target : vector_targets()) {
      if (is_fused(target) != fused) continue;
      const ForcedTarget forced(target);
      const std::string wrong = difference(product_of(given, data), expected);
      if (!wrong.empty()) RC_FAIL(std::string(hwy::TargetName(target)) + ": " + wrong);
    }
  }
}

// Draws sizes around those of vectors, tiles and blocks. Products are kept small enough for the loops above.
ProductCase drawn_product() {
  const auto size = rc::gen::element<std::size_t>(0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 14, 15, 16, 17, 23, 31, 32, 33, 47,
                                                  64, 65, 97, 113, 128, 129, 255, 256, 257, 300, 511, 513, 530);
  ProductCase given;
  given.shape = {*size, *size, *size};
  given.left_is_transposed = *rc::gen::arbitrary<bool>();
  given.right_is_transposed = *rc::gen::arbitrary<bool>();
  given.gap = *rc::gen::element<std::size_t>(0, 0, 1, 5);
  given.adds = *rc::gen::arbitrary<bool>();
  given.has_bias = *rc::gen::arbitrary<bool>();
  given.relu = *rc::gen::arbitrary<bool>();
  RC_PRE(given.shape.rows * given.shape.columns * given.shape.depth <= 400'000);
  return given;
}

TEST(MatrixProduct, HasThePromisedBitsOnAllVectors) {
  EXPECT_TRUE(rc::check([] {
    const ProductCase given = drawn_product();
    RC_LOG() << given << '\n';
    expect_promised_bits<float>(given);
  }));
}

TEST(MatrixProduct, OfDoublesHasThePromisedBitsOnAllVectors) {
  EXPECT_TRUE(rc::check([] {
    const ProductCase given = drawn_product();
    RC_LOG() << given << '\n';
    expect_promised_bits<double>(given);
  }));
}

// Shapes that reach every path: packed and direct operands, and transposed results.
TEST(MatrixProduct, HasThePromisedBitsOfLargeShapes) {
  const bool fused = is_fused(vector_targets().front());
  for (const ProductShape shape :
       {ProductShape{64, 300, 700}, {30, 130, 1100}, {300, 300, 40}, {64, 700, 64}, {600, 40, 64}, {3, 1100, 20}}) {
    for (const bool left : {false, true}) {
      for (const bool right : {false, true}) {
        const ProductCase given{.shape = shape, .left_is_transposed = left, .right_is_transposed = right};
        const ProductData<float> data(given);
        const std::vector<float> expected = expected_product(given, data, fused);
        for (const std::int64_t target : vector_targets()) {
          if (is_fused(target) != fused) continue;
          const ForcedTarget forced(target);
          EXPECT_EQ(difference(product_of(given, data), expected), "") << given << " by " << hwy::TargetName(target);
        }
      }
    }
  }
}

TEST(MatrixProduct, OfARowAloneHasTheBitsOfTheRowInAProduct) {
  const ProductCase given{.shape = {61, 77, 600}};
  ProductData<float> data(given);
  const std::vector<float> all = product_of(given, data);
  for (std::size_t row = 0; row < given.shape.rows; ++row) {
    std::vector<float> alone(given.shape.columns);
    matrix_product({1, given.shape.columns, given.shape.depth}, {&data.left.at(row, 0), data.left.stride},
                   data.right.operand(), {alone.data(), alone.size()});
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * data.target.stride);
    const std::vector<float> expected(begin, begin + static_cast<std::ptrdiff_t>(alone.size()));
    ASSERT_EQ(difference(alone, expected), "") << "row " << row;
  }
}

TEST(MatrixProduct, IsNearTheProductInDoubles) {
  const ProductCase given{.shape = {20, 30, 5000}};
  ProductData<float> data(given);
  const std::vector<float> found = product_of(given, data);
  for (std::size_t i = 0; i < given.shape.rows; ++i) {
    for (std::size_t j = 0; j < given.shape.columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < given.shape.depth; ++k)
        sum += double{data.left.at(i, k)} * double{data.right.at(k, j)};
      EXPECT_NEAR(found[i * data.target.stride + j], sum, 1e-4);
    }
  }
}

TEST(MatrixProduct, OfNoDepthIsTheEnding) {
  const std::vector<float> bias{-1, 2};
  std::vector<float> target{5, 6, 7, 8};
  const ProductOperand<float> nothing{nullptr, 0};
  matrix_product({2, 2, 0}, nothing, nothing, {target.data(), 2}, {.adds = true, .bias = bias.data()});
  EXPECT_EQ(target, (std::vector<float>{4, 8, 6, 10}));
  matrix_product({2, 2, 0}, nothing, nothing, {target.data(), 2}, {.bias = bias.data(), .relu = true});
  EXPECT_EQ(target, (std::vector<float>{0, 2, 0, 2}));
}

TEST(MatrixProduct, PassesNanAndInfinityOn) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t target : vector_targets()) {
    const ForcedTarget forced(target);
    const std::vector<float> left{1, nan, infinity, -infinity};
    const std::vector<float> right{2, 0};
    std::vector<float> found(8);
    matrix_product({4, 2, 1}, {left.data(), 1}, {right.data(), 2}, {found.data(), 2}, {.relu = true});
    EXPECT_EQ(difference(found, {2, 0, nan, nan, infinity, nan, 0, nan}), "") << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace lockstep::test
