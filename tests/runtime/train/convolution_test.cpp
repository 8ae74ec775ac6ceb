// SPDX-License-Identifier: Apache-2.0
// Convolutions and poolings by each set of vector instructions, against loops over pixels in doubles, and against
// products of patches that are written out.
#include "tests/runtime/train/vector_targets.hpp"
// Highway's targets are chosen above.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <optional>
#include <ostream>

#include "runtime/train/compute/convolution.hpp"
#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/compute/max_pooling.hpp"

namespace lockstep::test {
namespace {

using namespace train::compute;

std::string described(const ConvolutionShape& shape) {
  std::string all;
  for (const std::size_t number :
       {shape.image.batch, shape.image.height, shape.image.width, shape.image.channels, shape.filters,
        shape.window.height, shape.window.width, shape.window.stride_height, shape.window.stride_width})
    all += std::to_string(number) + " ";
  return all + (shape.window.padding == Padding::same ? "same" : "valid");
}

ConvolutionShape drawn_shape() {
  const auto pixels = rc::gen::inRange<std::size_t>(1, 12);
  const auto side = rc::gen::inRange<std::size_t>(1, 5);
  const auto stride = rc::gen::inRange<std::size_t>(1, 4);
  const auto channels = rc::gen::element<std::size_t>(1, 2, 3, 8, 17, 33);
  ConvolutionShape shape;
  shape.image = {*rc::gen::inRange<std::size_t>(0, 4), *pixels, *pixels, *channels};
  shape.window = {*side, *side, *stride, *stride, *rc::gen::element(Padding::valid, Padding::same)};
  shape.filters = *rc::gen::element<std::size_t>(1, 2, 5, 16, 31, 32, 40, 64);
  RC_PRE(shape.output().size() * shape.patch_size() <= 400'000);
  return shape;
}

// Returns the index of a pixel's first channel in the batch; nothing in the padding.
std::optional<std::size_t> pixel(const ImageShape& image, const Window& window, const ImageShape& output,
                                 std::size_t window_number, std::size_t v, std::size_t u) {
  const std::size_t x = window_number % output.width;
  const std::size_t y = window_number / output.width % output.height;
  const std::size_t n = window_number / output.width / output.height;
  const std::size_t row = y * window.stride_height + v - rows_of_windows(image, window).pad_before;
  const std::size_t column = x * window.stride_width + u - columns_of_windows(image, window).pad_before;
  if (row >= image.height || column >= image.width) return {};  // also below zero, which wraps around
  return ((n * image.height + row) * image.width + column) * image.channels;
}

// Calls f(window, filter, index in the image, index in the kernel) for every product of a convolution.
template <class F>
void for_each_product(const ConvolutionShape& shape, const F& f) {
  const ImageShape out = shape.output();
  for (std::size_t window = 0; window < out.batch * out.height * out.width; ++window) {
    for (std::size_t v = 0; v < shape.window.height; ++v) {
      for (std::size_t u = 0; u < shape.window.width; ++u) {
        const std::optional<std::size_t> at = pixel(shape.image, shape.window, out, window, v, u);
        for (std::size_t c = 0; at && c < shape.image.channels; ++c) {
          const std::size_t patch = (v * shape.window.width + u) * shape.image.channels + c;
          for (std::size_t filter = 0; filter < shape.filters; ++filter)
            f(window * shape.filters + filter, *at + c, patch * shape.filters + filter);
        }
      }
    }
  }
}

template <class T>
struct ConvolutionData {
  explicit ConvolutionData(const ConvolutionShape& shape)
      : image(random_numbers<T>(shape.image.size(), 1)),
        kernel(random_numbers<T>(shape.kernel_size(), 2)),
        output_gradient(random_numbers<T>(shape.output().size(), 3)),
        bias(random_numbers<T>(shape.filters, 4)) {}
  std::vector<T> image, kernel, output_gradient, bias;
};

// Holds what the three functions write.
template <class T>
struct ConvolutionResults {
  std::vector<T> output, image_gradient, kernel_gradient;
};

template <class T>
ConvolutionResults<T> results_of(const ConvolutionShape& shape, const ConvolutionData<T>& data) {
  const T old = 77;  // is overwritten
  ConvolutionResults<T> results{std::vector<T>(shape.output().size(), old), std::vector<T>(shape.image.size(), old),
                                std::vector<T>(shape.kernel_size(), old)};
  convolve(shape, data.image.data(), data.kernel.data(), results.output.data(),
           ConvolutionEnding<T>{data.bias.data(), true});
  convolution_image_gradient(shape, data.output_gradient.data(), data.kernel.data(), results.image_gradient.data());
  convolution_kernel_gradient(shape, data.image.data(), data.output_gradient.data(), results.kernel_gradient.data());
  return results;
}

template <class T>
ConvolutionResults<double> expected_results(const ConvolutionShape& shape, const ConvolutionData<T>& data) {
  ConvolutionResults<double> sums{std::vector<double>(shape.output().size()), std::vector<double>(shape.image.size()),
                                  std::vector<double>(shape.kernel_size())};
  for (std::size_t i = 0; i < sums.output.size(); ++i) sums.output[i] = double{data.bias[i % shape.filters]};
  for_each_product(shape, [&](std::size_t out, std::size_t in, std::size_t weight) {
    sums.output[out] += double{data.image[in]} * double{data.kernel[weight]};
    sums.image_gradient[in] += double{data.output_gradient[out]} * double{data.kernel[weight]};
    sums.kernel_gradient[weight] += double{data.output_gradient[out]} * double{data.image[in]};
  });
  for (double& sum : sums.output) sum = std::max(sum, 0.0);
  return sums;
}

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<double>& expected, double tolerance) {
  RC_ASSERT(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) RC_ASSERT(std::abs(double{found[i]} - expected[i]) <= tolerance);
}

template <class T>
void expect_sums(const ConvolutionShape& shape, double tolerance) {
  const ConvolutionData<T> data(shape);
  const ConvolutionResults<double> expected = expected_results(shape, data);
  for (const std::int64_t target : vector_targets()) {
    const ForcedTarget forced(target);
    const ConvolutionResults<T> found = results_of(shape, data);
    expect_near(found.output, expected.output, tolerance);
    expect_near(found.image_gradient, expected.image_gradient, tolerance);
    expect_near(found.kernel_gradient, expected.kernel_gradient, tolerance);
  }
}

TEST(Convolution, IsTheSumOverPixels) {
  EXPECT_TRUE(rc::check([] {
    const ConvolutionShape shape = drawn_shape();
    RC_LOG() << described(shape) << '\n';
    expect_sums<float>(shape, 2e-3);
  }));
}

TEST(Convolution, OfDoublesIsTheSumOverPixels) {
  EXPECT_TRUE(rc::check([] {
    const ConvolutionShape shape = drawn_shape();
    RC_LOG() << described(shape) << '\n';
    expect_sums<double>(shape, 1e-11);
  }));
}

TEST(Convolution, HasTheSameBitsOnAllFusedVectors) {
  EXPECT_TRUE(rc::check([] {
    const ConvolutionShape shape = drawn_shape();
    RC_LOG() << described(shape) << '\n';
    const ConvolutionData<float> data(shape);
    std::optional<ConvolutionResults<float>> first;
    for (const std::int64_t target : vector_targets()) {
      if (!is_fused(target)) continue;
      const ForcedTarget forced(target);
      const ConvolutionResults<float> found = results_of(shape, data);
      if (!first) first = found;
      RC_ASSERT(difference(found.output, first->output) == "");
      RC_ASSERT(difference(found.image_gradient, first->image_gradient) == "");
      RC_ASSERT(difference(found.kernel_gradient, first->kernel_gradient) == "");
    }
  }));
}

TEST(Convolution, HasTheBitsOfTheProductOfPatches) {
  for (const Padding padding : {Padding::valid, Padding::same}) {
    const ConvolutionShape shape{{2, 11, 13, 40}, {3, 3, 1, 2, padding}, 37};
    const ConvolutionData<float> data(shape);
    const ImageShape out = shape.output();
    const std::size_t windows = out.batch * out.height * out.width;
    std::vector<float> patches(windows * shape.patch_size());
    for (std::size_t i = 0; i < patches.size(); ++i) {
      const std::size_t place = i % shape.patch_size() / shape.image.channels;
      const std::size_t window = i / shape.patch_size();
      const auto at =
          pixel(shape.image, shape.window, out, window, place / shape.window.width, place % shape.window.width);
      if (at) patches[i] = data.image[*at + i % shape.image.channels];
    }
    std::vector<float> expected(out.size());
    matrix_product({windows, shape.filters, shape.patch_size()}, {patches.data(), shape.patch_size()},
                   {data.kernel.data(), shape.filters}, {expected.data(), shape.filters},
                   {false, data.bias.data(), true});
    EXPECT_EQ(difference(results_of(shape, data).output, expected), "");
  }
}

TEST(Convolution, OfAnImageDoesNotDependOnTheBatch) {
  const ConvolutionShape shape{{3, 9, 10, 5}, {3, 2, 1, 1, Padding::same}, 20};
  const ConvolutionData<float> data(shape);
  const ConvolutionResults<float> all = results_of(shape, data);
  ConvolutionShape one = shape;
  one.image.batch = 1;
  for (std::size_t n = 0; n < 3; ++n) {
    ConvolutionData<float> alone(one);
    alone.kernel = data.kernel;
    alone.bias = data.bias;
    std::copy_n(data.image.begin() + static_cast<std::ptrdiff_t>(n * one.image.size()), one.image.size(),
                alone.image.begin());
    std::copy_n(data.output_gradient.begin() + static_cast<std::ptrdiff_t>(n * one.output().size()),
                one.output().size(), alone.output_gradient.begin());
    const ConvolutionResults<float> found = results_of(one, alone);
    const auto output = all.output.begin() + static_cast<std::ptrdiff_t>(n * one.output().size());
    EXPECT_EQ(difference(found.output, {output, output + static_cast<std::ptrdiff_t>(found.output.size())}), "");
    const auto gradient = all.image_gradient.begin() + static_cast<std::ptrdiff_t>(n * one.image.size());
    EXPECT_EQ(difference(found.image_gradient, {gradient, gradient + static_cast<std::ptrdiff_t>(one.image.size())}),
              "");
  }
}

TEST(Windows, LieAsInTensorFlow) {
  const auto expect_places = [](WindowPlaces found, std::size_t count, std::size_t before, std::size_t after) {
    EXPECT_EQ(found.count, count);
    EXPECT_EQ(found.pad_before, before);
    EXPECT_EQ(found.pad_after, after);
  };
  expect_places(window_places(28, 3, 1, Padding::valid), 26, 0, 0);
  expect_places(window_places(28, 3, 1, Padding::same), 28, 1, 1);
  expect_places(window_places(28, 4, 1, Padding::same), 28, 1, 2);
  expect_places(window_places(5, 2, 2, Padding::same), 3, 0, 1);
  expect_places(window_places(4, 1, 2, Padding::same), 2, 0, 0);
  expect_places(window_places(2, 3, 1, Padding::valid), 0, 0, 0);
}

template <class T>
struct PoolResults {
  std::vector<T> output, image_gradient;
  std::vector<std::uint32_t> positions;
};

template <class T>
PoolResults<T> pooled(const MaxPoolShape& shape, const std::vector<T>& image, const std::vector<T>& output_gradient) {
  const std::size_t size = shape.output().size();
  PoolResults<T> results{std::vector<T>(size, T{77}), std::vector<T>(shape.image.size(), T{77}),
                         std::vector<std::uint32_t>(size, 77)};
  max_pool(shape, image.data(), results.output.data(), results.positions.data());
  max_pool_gradient(shape, output_gradient.data(), results.positions.data(), results.image_gradient.data());
  return results;
}

template <class T>
PoolResults<T> expected_pool(const MaxPoolShape& shape, const std::vector<T>& image,
                             const std::vector<T>& output_gradient) {
  const ImageShape out = shape.output();
  PoolResults<T> results{std::vector<T>(out.size()), std::vector<T>(shape.image.size()),
                         std::vector<std::uint32_t>(out.size())};
  const std::size_t one = shape.image.height * shape.image.width * shape.image.channels;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::optional<std::size_t> best;
    for (std::size_t place = 0; place < shape.window.height * shape.window.width; ++place) {
      const auto at = pixel(shape.image, shape.window, out, i / out.channels, place / shape.window.width,
                            place % shape.window.width);
      if (!at) continue;
      const std::size_t index = *at + i % out.channels;
      const bool is_better =
          !best || image[index] > image[*best] || (std::isnan(image[index]) && !std::isnan(image[*best]));
      if (is_better) best = index;
    }
    results.output[i] = image[best.value()];
    results.positions[i] = static_cast<std::uint32_t>(*best % one);
    results.image_gradient[*best] += output_gradient[i];
  }
  return results;
}

template <class T>
void expect_pool(const ConvolutionShape& drawn) {
  const MaxPoolShape shape{drawn.image, drawn.window};
  std::vector<T> image = random_numbers<T>(shape.image.size(), 1);
  for (T& number : image) number = std::round(number * 3);  // some are equal
  for (std::size_t i = 5; i < image.size(); i += 17) image[i] = std::numeric_limits<T>::quiet_NaN();
  for (std::size_t i = 3; i < image.size(); i += 19) image[i] = -std::numeric_limits<T>::infinity();
  const std::vector<T> output_gradient = random_numbers<T>(shape.output().size(), 2);
  const PoolResults<T> expected = expected_pool(shape, image, output_gradient);
  for (const std::int64_t target : vector_targets()) {
    const ForcedTarget forced(target);
    const PoolResults<T> found = pooled(shape, image, output_gradient);
    RC_ASSERT(difference(found.output, expected.output) == "");
    RC_ASSERT(found.positions == expected.positions);
    RC_ASSERT(difference(found.image_gradient, expected.image_gradient) == "");
  }
}

TEST(MaxPool, ChoosesTheFirstMaximumOfEachWindow) {
  EXPECT_TRUE(rc::check([] {
    const ConvolutionShape shape = drawn_shape();
    RC_LOG() << described(shape) << '\n';
    expect_pool<float>(shape);
    expect_pool<double>(shape);
  }));
}

}  // namespace
}  // namespace lockstep::test
