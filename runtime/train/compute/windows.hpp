// SPDX-License-Identifier: Apache-2.0
// Describes images and the windows that convolutions and poolings move over them. Images are NHWC: batch, height, width
// and channels, with adjacent channels.
#pragma once

#include <cstddef>

namespace lockstep::train::compute {

struct ImageShape {
  std::size_t batch = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 1;
  std::size_t size() const { return batch * height * width * channels; }
};

// Says where windows may lie, as in TensorFlow. Valid windows lie inside the image. With `same` there is one for every
// stride that begins in the image; the missing pixels are padded, half of them, rounded down, before the first.
enum class Padding { valid, same };

// Gives the size of a window and its distance from the next. No number may be zero.
struct Window {
  std::size_t height = 1;
  std::size_t width = 1;
  std::size_t stride_height = 1;
  std::size_t stride_width = 1;
  Padding padding = Padding::valid;
};

// Gives the windows along one side of an image, and the pixels that are missing before and after it.
struct WindowPlaces {
  std::size_t count = 0;
  std::size_t pad_before = 0;
  std::size_t pad_after = 0;
};

constexpr WindowPlaces window_places(std::size_t pixels, std::size_t window, std::size_t stride, Padding padding) {
  if (padding == Padding::valid) return {pixels < window ? 0 : (pixels - window) / stride + 1, 0, 0};
  const std::size_t count = (pixels + stride - 1) / stride;
  const std::size_t end = count == 0 ? 0 : (count - 1) * stride + window;
  const std::size_t missing = end > pixels ? end - pixels : 0;
  return {count, missing / 2, missing - missing / 2};
}

constexpr WindowPlaces rows_of_windows(const ImageShape& image, const Window& window) {
  return window_places(image.height, window.height, window.stride_height, window.padding);
}
constexpr WindowPlaces columns_of_windows(const ImageShape& image, const Window& window) {
  return window_places(image.width, window.width, window.stride_width, window.padding);
}

// Returns the shape of the output: one pixel per window, with `channels` channels.
constexpr ImageShape output_shape(const ImageShape& image, const Window& window, std::size_t channels) {
  return {image.batch, rows_of_windows(image, window).count, columns_of_windows(image, window).count, channels};
}

}  // namespace lockstep::train::compute
