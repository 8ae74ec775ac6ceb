// SPDX-License-Identifier: Apache-2.0
// The drawn digits: their bytes, their classes, and that a simple program can tell them apart.
#include "runtime/data/digits.hpp"

#include <gtest/gtest.h>

#include "runtime/data/dataset.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t pixels = 784;

// All machines and compilers draw these bytes.
TEST(Digits, HaveGoldenBytes) {
  const data::Digits digits = data::synthetic_digits(1000, 1);
  EXPECT_EQ(digits.images.shape(), (TensorShape{1000, 28, 28}));
  EXPECT_EQ(digits.labels.shape(), TensorShape{1000});
  EXPECT_EQ(hash(std::as_bytes(digits.images.span())), 0x71220693d2ec5329U);
  EXPECT_EQ(hash(std::as_bytes(digits.labels.span())), 0x22828d199bad3397U);
  const data::Digits first = data::synthetic_digits(15, 1);
  EXPECT_EQ(first.images, digits.images.rows(0, 15).copy()) << "fewer digits are the first of more";
  EXPECT_EQ(first.labels, digits.labels.rows(0, 15).copy());
  EXPECT_NE(first.images, data::synthetic_digits(15, 2).images);
  EXPECT_EQ(data::synthetic_digits(0, 1).images.shape(), (TensorShape{0, 28, 28}));
  EXPECT_PRED2(holds, refusal([] { data::synthetic_digits(-1, 1); }, Code::usage), "synthetic_digits(-1)");
}

TEST(Digits, AreAsManyOfEachClass) {
  std::array<int, 10> counts{};
  const Tensor<std::uint8_t> labels = data::synthetic_digits(1004, 3).labels;
  for (const std::uint8_t label : labels) ++counts.at(label);
  for (const int count : counts) EXPECT_TRUE(count == 100 || count == 101) << count;
  EXPECT_FALSE(std::equal(labels.begin(), labels.begin() + 10, labels.begin() + 10)) << "each ten have an order";
}

// Others are nearest to the mean picture of their class.
TEST(Digits, CanBeToldApart) {
  constexpr std::int64_t number = 4000;
  constexpr std::int64_t held_out = 1000;
  const data::Digits digits = data::synthetic_digits(number + held_out, 1);
  const auto examples = data::from_tensor_slices(std::pair(digits.images, digits.labels))
                            .map([](const Tensor<std::uint8_t>& image, const Tensor<std::uint8_t>& label) {
                              Tensor<float> x = cast<float>(image);
                              for (float& each : x) each /= 255;
                              return std::pair(std::move(x), static_cast<std::int64_t>(label.item()));
                            });
  std::array<std::array<float, pixels>, 10> means{};
  for (const auto& [x, y] : examples.take(number))
    for (std::size_t i = 0; i < pixels; ++i) means.at(static_cast<std::size_t>(y))[i] += x[i] * 10 / number;
  const auto class_of = [&](const Tensor<float>& x) {
    std::array<float, 10> distances{};
    for (std::size_t digit = 0; digit < 10; ++digit)
      for (std::size_t i = 0; i < pixels; ++i) distances[digit] += (x[i] - means[digit][i]) * (x[i] - means[digit][i]);
    return std::ranges::min_element(distances) - distances.begin();
  };
  int right = 0;
  for (const auto& [x, y] : examples.skip(number)) right += class_of(x) == y ? 1 : 0;
  EXPECT_GT(right, held_out * 8 / 10);
  EXPECT_LT(right, held_out * 97 / 100) << "a network has something to learn";
}

}  // namespace
}  // namespace lockstep::test
