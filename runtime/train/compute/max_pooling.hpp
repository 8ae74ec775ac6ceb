// SPDX-License-Identifier: Apache-2.0
// Finds the maximum of each window and channel of images, and hands gradients back to the elements that were chosen.
// The first maximum in row-major order is chosen, as in TensorFlow; a window with NaN chooses its first NaN. Padding is
// never chosen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/train/compute/windows.hpp"

namespace lockstep::train::compute {

struct MaxPoolShape {
  ImageShape image;
  Window window;
  ImageShape output() const { return output_shape(image, window, image.channels); }
};

// Writes the maxima, and the position of each: the index of its element in its image, (y * width + x) * channels + c.
void max_pool(const MaxPoolShape& shape, const float* image, float* output, std::uint32_t* positions);
void max_pool(const MaxPoolShape& shape, const double* image, double* output, std::uint32_t* positions);

// Write the gradient of the image. It adds in the order of the outputs.
void max_pool_gradient(const MaxPoolShape& shape, const float* output_gradient, const std::uint32_t* positions,
                       float* image_gradient);
void max_pool_gradient(const MaxPoolShape& shape, const double* output_gradient, const std::uint32_t* positions,
                       double* image_gradient);

}  // namespace lockstep::train::compute
