// SPDX-License-Identifier: Apache-2.0
// Convolves images in two dimensions on one thread, and computes both gradients. Images are NHWC and kernels HWIO:
// height, width, channels, filters. Every result is a matrix product over patches, which are never written out.
//
// The order of additions is fixed, so results have the same bits in every run and on all vectors with fused
// multiply-add, as those of matrix_product:
// - A forward sum goes over the kernel's height, width and channels in blocks of 256, as matrix_product of the patches.
// - The kernel's gradient goes over the windows of each image in blocks of 256, and adds all blocks in order.
// - The image's gradient adds one number per window, in the order of windows and then of places in a window. Each
//   number is a matrix product over the filters.
// Padding counts as pixels of zero. An image's results do not depend on the batch.
#pragma once

#include <cstddef>

#include "runtime/train/compute/windows.hpp"

namespace lockstep::train::compute {

struct ConvolutionShape {
  ImageShape image;
  Window window;
  std::size_t filters = 1;

  ImageShape output() const { return output_shape(image, window, filters); }
  std::size_t patch_size() const { return window.height * window.width * image.channels; }
  std::size_t kernel_size() const { return patch_size() * filters; }
};

// Says how sums become the output: `bias` is null or has a number per filter; `relu` then replaces negative numbers by
// zero and keeps NaN.
template <class T>
struct ConvolutionEnding {
  const T* bias = nullptr;
  bool relu = false;
};

// Writes the output.
void convolve(const ConvolutionShape& shape, const float* image, const float* kernel, float* output,
              const ConvolutionEnding<float>& ending = {});
void convolve(const ConvolutionShape& shape, const double* image, const double* kernel, double* output,
              const ConvolutionEnding<double>& ending = {});

// Write the gradient of the image, from that of the output before bias and relu.
void convolution_image_gradient(const ConvolutionShape& shape, const float* output_gradient, const float* kernel,
                                float* image_gradient);
void convolution_image_gradient(const ConvolutionShape& shape, const double* output_gradient, const double* kernel,
                                double* image_gradient);

// Write the gradient of the kernel, from that of the output before bias and relu.
void convolution_kernel_gradient(const ConvolutionShape& shape, const float* image, const float* output_gradient,
                                 float* kernel_gradient);
void convolution_kernel_gradient(const ConvolutionShape& shape, const double* image, const double* output_gradient,
                                 double* kernel_gradient);

}  // namespace lockstep::train::compute
