// SPDX-License-Identifier: Apache-2.0
// Pools a vector of channels at a time. Doubles, and channels that fill no vector, are pooled one by one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/train/compute/max_pooling.cpp"
#include "runtime/train/compute/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/train/compute/max_pooling.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Is the part of a window that lies in the image: rows and columns of pixels, ends excluded.
struct PixelRange {
  std::size_t top = 0;
  std::size_t bottom = 0;
  std::size_t left = 0;
  std::size_t right = 0;
};

// Returns the pixels of a window along one side.
struct SideRange {
  std::size_t first = 0;
  std::size_t end = 0;
};
SideRange range_of(std::size_t index, std::size_t stride, std::size_t window, std::size_t pixels, std::size_t padding) {
  const std::size_t begin = index * stride;  // in the padded image
  return {std::max(begin, padding) - padding, std::min(begin + window, padding + pixels) - padding};
}

// Refers to one image.
template <class T>
struct OneImage {
  const T* data = nullptr;
  std::size_t width = 0;
  std::size_t channels = 0;
};

template <class T>
void pool_channel(const OneImage<T>& image, const PixelRange& pixels, std::size_t channel, T* output,
                  std::uint32_t* positions) {
  std::size_t best = (pixels.top * image.width + pixels.left) * image.channels + channel;
  for (std::size_t y = pixels.top; y < pixels.bottom; ++y) {
    for (std::size_t x = pixels.left; x < pixels.right; ++x) {
      const std::size_t at = (y * image.width + x) * image.channels + channel;
      const T kept = image.data[best];
      if (!(image.data[at] <= kept) && !std::isnan(kept)) best = at;  // NaN is not at most anything
    }
  }
  output[channel] = image.data[best];
  positions[channel] = static_cast<std::uint32_t>(best);
}

// Pools one vector of channels from `channel`.
void pool_channels(const OneImage<float>& image, const PixelRange& pixels, std::size_t channel, float* output,
                   std::uint32_t* positions) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> numbers;
  const std::size_t first = (pixels.top * image.width + pixels.left) * image.channels + channel;
  auto best = hn::LoadU(d, image.data + first);
  auto position = hn::Set(numbers, static_cast<std::uint32_t>(first));
  for (std::size_t y = pixels.top; y < pixels.bottom; ++y) {
    for (std::size_t x = pixels.left; x < pixels.right; ++x) {
      const std::size_t at = (y * image.width + x) * image.channels + channel;
      const auto value = hn::LoadU(d, image.data + at);
      const auto is_better = hn::And(hn::Not(hn::Le(value, best)), hn::Eq(best, best));
      best = hn::IfThenElse(is_better, value, best);
      position = hn::IfThenElse(hn::RebindMask(numbers, is_better), hn::Set(numbers, static_cast<std::uint32_t>(at)),
                                position);
    }
  }
  hn::StoreU(best, d, output + channel);
  hn::StoreU(hn::Add(position, hn::Iota(numbers, 0)), numbers, positions + channel);
}

template <class T>
void pool_window(const OneImage<T>& image, const PixelRange& pixels, T* output, std::uint32_t* positions) {
  std::size_t channel = 0;
  if constexpr (std::is_same_v<T, float>) {
    const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
    for (; channel + lanes <= image.channels; channel += lanes)
      pool_channels(image, pixels, channel, output, positions);
  }
  for (; channel < image.channels; ++channel) pool_channel(image, pixels, channel, output, positions);
}

template <class T>
void pool(const MaxPoolShape& shape, const T* image, T* output, std::uint32_t* positions) {
  const ImageShape& from = shape.image;
  const WindowPlaces rows = rows_of_windows(from, shape.window);
  const WindowPlaces columns = columns_of_windows(from, shape.window);
  for (std::size_t n = 0; n < from.batch; ++n) {
    const OneImage<T> one{image + n * from.height * from.width * from.channels, from.width, from.channels};
    for (std::size_t y = 0; y < rows.count; ++y) {
      const SideRange down = range_of(y, shape.window.stride_height, shape.window.height, from.height, rows.pad_before);
      for (std::size_t x = 0; x < columns.count; ++x, output += from.channels, positions += from.channels) {
        const SideRange along =
            range_of(x, shape.window.stride_width, shape.window.width, from.width, columns.pad_before);
        pool_window(one, {down.first, down.end, along.first, along.end}, output, positions);
      }
    }
  }
}

void pool_floats(const MaxPoolShape& shape, const float* image, float* output, std::uint32_t* positions) {
  pool(shape, image, output, positions);
}
void pool_doubles(const MaxPoolShape& shape, const double* image, double* output, std::uint32_t* positions) {
  pool(shape, image, output, positions);
}

}  // namespace
}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::train::compute {

HWY_EXPORT(pool_floats);
HWY_EXPORT(pool_doubles);

void max_pool(const MaxPoolShape& shape, const float* image, float* output, std::uint32_t* positions) {
  HWY_DYNAMIC_DISPATCH(pool_floats)(shape, image, output, positions);
}
void max_pool(const MaxPoolShape& shape, const double* image, double* output, std::uint32_t* positions) {
  HWY_DYNAMIC_DISPATCH(pool_doubles)(shape, image, output, positions);
}

namespace {

template <class T>
void unpool(const MaxPoolShape& shape, const T* output_gradient, const std::uint32_t* positions, T* image_gradient) {
  const std::size_t size = shape.image.height * shape.image.width * shape.image.channels;
  const ImageShape out = shape.output();
  const std::size_t outputs = out.height * out.width * out.channels;
  std::fill_n(image_gradient, shape.image.size(), T{0});
  for (std::size_t n = 0; n < out.batch; ++n, image_gradient += size) {
    for (std::size_t i = 0; i < outputs; ++i) image_gradient[*positions++] += *output_gradient++;
  }
}

}  // namespace

void max_pool_gradient(const MaxPoolShape& shape, const float* output_gradient, const std::uint32_t* positions,
                       float* image_gradient) {
  unpool(shape, output_gradient, positions, image_gradient);
}
void max_pool_gradient(const MaxPoolShape& shape, const double* output_gradient, const std::uint32_t* positions,
                       double* image_gradient) {
  unpool(shape, output_gradient, positions, image_gradient);
}

}  // namespace lockstep::train::compute
#endif
