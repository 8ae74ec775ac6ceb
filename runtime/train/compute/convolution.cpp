// SPDX-License-Identifier: Apache-2.0
// Convolves by the tiles of matrix products, which read patches where they lie in the image: the windows of one line
// have a constant distance, and so do the pixels in a line of a window. Images that need padding are copied with it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/train/compute/convolution.cpp"
#include "runtime/train/compute/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "runtime/train/compute/convolution.hpp"
#include "runtime/train/compute/product_blocks-inl.hpp"
#include "runtime/train/compute/scratch.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace {

// Limits the gradients of patches that are kept before they are added to the image: half of a common second cache.
constexpr std::size_t patch_gradient_bytes = std::size_t{256} << 10U;

// Refers to images in which every window lies inside.
template <class T>
struct PaddedImages {
  const T* data = nullptr;
  std::size_t height = 0;
  std::size_t width = 0;
};

template <class T>
PaddedImages<T> pad(const ConvolutionShape& shape, const T* image) {
  const ImageShape& from = shape.image;
  const WindowPlaces rows = rows_of_windows(from, shape.window);
  const WindowPlaces columns = columns_of_windows(from, shape.window);
  const std::size_t height = rows.pad_before + from.height + rows.pad_after;
  const std::size_t width = columns.pad_before + from.width + columns.pad_after;
  if (height == from.height && width == from.width) return {image, height, width};
  const std::size_t line = width * from.channels;
  T* const padded = scratch<T>(ScratchUse::padded_images, from.batch * height * line);
  std::fill_n(padded, from.batch * height * line, T{0});
  for (std::size_t n = 0; n < from.batch; ++n) {
    for (std::size_t y = 0; y < from.height; ++y) {
      const T* const source = image + (n * from.height + y) * from.width * from.channels;
      T* const to = padded + (n * height + rows.pad_before + y) * line + columns.pad_before * from.channels;
      std::copy_n(source, from.width * from.channels, to);
    }
  }
  return {padded, height, width};
}

// Collects the runs of a block of depth. A block has at most 256 elements, and a run at least one.
class RunList {
 public:
  void add(std::size_t offset, std::size_t length) { runs_[count_++] = {offset, length}; }
  const DepthRun* data() const { return runs_.data(); }
  std::size_t size() const { return count_; }

 private:
  std::array<DepthRun, depth_block> runs_;
  std::size_t count_ = 0;
};

// Cuts an interval into pieces that end at multiples of `line`. Piece `i` begins at `offset(line number, place in it)`.
template <class Offset>
RunList runs_of(BlockRange range, std::size_t line, const Offset& offset) {
  RunList runs;
  for (std::size_t at = range.first, end = range.first + range.length; at < end;) {
    const std::size_t length = std::min(line - at % line, end - at);
    runs.add(offset(at / line, at % line), length);
    at += length;
  }
  return runs;
}

// Convolves with a block of the kernel: some filters, and some of the depth.
template <class T>
void convolve_block(const ConvolutionShape& shape, const PaddedImages<T>& images, const RunList& runs,
                    const RightBlock<T>& kernel, T* output, const ProductEnding<T>& ending) {
  const ImageShape out = shape.output();
  const std::size_t line = images.width * shape.image.channels;
  for (std::size_t n = 0; n < out.batch; ++n) {
    for (std::size_t y = 0; y < out.height; ++y) {
      const T* const from = images.data + (n * images.height + y * shape.window.stride_height) * line;
      T* const to = output + (n * out.height + y) * out.width * out.channels;
      multiply_rows<T>({from, shape.window.stride_width * shape.image.channels, false, runs.data(), runs.size()},
                       out.width, kernel, {to, out.channels}, ending);
    }
  }
}

template <class T>
void convolve_all(const ConvolutionShape& shape, const T* image, const T* kernel, T* output,
                  const ConvolutionEnding<T>& given) {
  if (shape.output().size() == 0) return;
  const PaddedImages<T> images = pad(shape, image);
  const std::size_t line = images.width * shape.image.channels;
  const std::size_t depth = shape.patch_size();
  const ProductEnding<T> ending{false, given.bias, given.relu};
  const bool is_packed = shape.filters > 256;
  T* const packed =
      scratch<T>(ScratchUse::right_panels, packed_size<T>(depth_block, std::min(column_block, shape.filters)));
  for (std::size_t j = 0; j < shape.filters; j += column_block) {
    const BlockRange filters{j, std::min(column_block, shape.filters - j)};
    std::size_t k = 0;
    do {  // also once for a depth of zero
      const BlockRange range{k, std::min(depth_block, depth - k)};
      const RightBlock<T> block = prepare_right<T>({kernel, shape.filters}, range, filters, is_packed, packed);
      const auto offset = [line](std::size_t y, std::size_t at) { return y * line + at; };
      const RunList runs = runs_of(range, shape.window.width * shape.image.channels, offset);
      convolve_block(shape, images, runs, block, output + j,
                     ending_of_block(ending, k == 0, k + range.length == depth, j));
      k += range.length;
    } while (k < depth);
  }
}

// Adds the product of one image's patches and some of its output gradient to columns of the kernel's gradient.
template <class T>
void add_kernel_gradient(const ConvolutionShape& shape, const T* image, std::size_t image_line, const RunList& windows,
                         const RightBlock<T>& output_gradient, T* kernel_gradient, bool adds) {
  const std::size_t rows = shape.window.width * shape.image.channels;
  const std::size_t step = shape.window.stride_width * shape.image.channels;
  for (std::size_t y = 0; y < shape.window.height; ++y) {
    multiply_rows<T>({image + y * image_line, step, true, windows.data(), windows.size()}, rows, output_gradient,
                     {kernel_gradient + y * rows * shape.filters, shape.filters}, {.adds = adds});
  }
}

template <class T>
void kernel_gradient_of(const ConvolutionShape& shape, const T* image, const T* output_gradient, T* kernel_gradient) {
  const ImageShape out = shape.output();
  if (out.size() == 0) std::fill_n(kernel_gradient, shape.kernel_size(), T{0});
  if (out.size() == 0) return;
  const PaddedImages<T> images = pad(shape, image);
  const std::size_t line = images.width * shape.image.channels;
  const std::size_t windows = out.height * out.width;
  T* const packed =
      scratch<T>(ScratchUse::right_panels, packed_size<T>(depth_block, std::min(column_block, shape.filters)));
  const auto offset = [&](std::size_t y, std::size_t x) {
    return y * shape.window.stride_height * line + x * shape.window.stride_width * shape.image.channels;
  };
  for (std::size_t j = 0; j < shape.filters; j += column_block) {
    const BlockRange filters{j, std::min(column_block, shape.filters - j)};
    for (std::size_t n = 0; n < out.batch; ++n) {
      const ProductOperand<T> right{output_gradient + n * windows * shape.filters, shape.filters};
      for (std::size_t k = 0; k < windows; k += depth_block) {
        const BlockRange range{k, std::min(depth_block, windows - k)};
        const RightBlock<T> block = prepare_right(right, range, filters, false, packed);
        add_kernel_gradient(shape, images.data + n * images.height * line, line, runs_of(range, out.width, offset),
                            block, kernel_gradient + j, n + k > 0);
      }
    }
  }
}

template <class T>
HWY_INLINE void add_to(T* to, const T* from, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  for (; i < count; ++i) to[i] += from[i];
}

// Adds the gradients of the patches of one line of windows to one image's gradient.
template <class T>
void add_patches(const ConvolutionShape& shape, std::size_t line, const T* patches, T* image_gradient) {
  const ImageShape& image = shape.image;
  const WindowPlaces rows = rows_of_windows(image, shape.window);
  const WindowPlaces columns = columns_of_windows(image, shape.window);
  for (std::size_t x = 0; x < columns.count; ++x) {
    // Of the window's columns those from `first` to before `end` lie in the image.
    const std::size_t left = x * shape.window.stride_width;
    const std::size_t first = columns.pad_before > left ? columns.pad_before - left : 0;
    const std::size_t end = std::min(shape.window.width, columns.pad_before + image.width - left);
    for (std::size_t v = 0; v < shape.window.height; ++v, patches += shape.window.width * image.channels) {
      const std::size_t y = line * shape.window.stride_height + v - rows.pad_before;  // wraps around above the image
      if (y >= image.height || first >= end) continue;
      add_to(image_gradient + (y * image.width + left + first - columns.pad_before) * image.channels,
             patches + first * image.channels, (end - first) * image.channels);
    }
  }
}

template <class T>
void image_gradient_of(const ConvolutionShape& shape, const T* output_gradient, const T* kernel, T* image_gradient) {
  const ImageShape out = shape.output();
  const ImageShape& image = shape.image;
  std::fill_n(image_gradient, image.size(), T{0});
  if (out.size() == 0 || image.size() == 0) return;
  const std::size_t patch = shape.patch_size();
  const std::size_t padded = packed_size<T>(1, patch);
  T* const packed = scratch<T>(ScratchUse::right_panels, padded * shape.filters);
  for (std::size_t k = 0; k < shape.filters; k += depth_block) {
    const BlockRange range{k, std::min(depth_block, shape.filters - k)};
    pack_right<T>({kernel, shape.filters, true}, range, {0, patch}, packed + k * padded);
  }
  const std::size_t fitting = patch_gradient_bytes / (out.width * patch * sizeof(T));
  const std::size_t lines = std::clamp(fitting, std::size_t{1}, out.height);
  T* const patches = scratch<T>(ScratchUse::patch_gradients, lines * out.width * patch);
  for (std::size_t n = 0; n < out.batch; ++n) {
    for (std::size_t y = 0; y < out.height; y += lines) {
      const std::size_t rows = std::min(lines, out.height - y) * out.width;
      const T* const from = output_gradient + (n * out.height + y) * out.width * shape.filters;
      for (std::size_t k = 0; k < shape.filters; k += depth_block) {
        const std::size_t length = std::min(depth_block, shape.filters - k);
        const DepthRun run{k, length};
        multiply_rows<T>({from, shape.filters, false, &run, 1}, rows,
                         {.packed = packed + k * padded, .depth = length, .columns = patch}, {patches, patch},
                         {.adds = k > 0});
      }
      for (std::size_t line = 0; line < rows / out.width; ++line)
        add_patches(shape, y + line, patches + line * out.width * patch,
                    image_gradient + n * image.height * image.width * image.channels);
    }
  }
}

void convolve_floats(const ConvolutionShape& shape, const float* image, const float* kernel, float* output,
                     const ConvolutionEnding<float>& ending) {
  convolve_all(shape, image, kernel, output, ending);
}
void convolve_doubles(const ConvolutionShape& shape, const double* image, const double* kernel, double* output,
                      const ConvolutionEnding<double>& ending) {
  convolve_all(shape, image, kernel, output, ending);
}
void float_image_gradient(const ConvolutionShape& shape, const float* output_gradient, const float* kernel,
                          float* image_gradient) {
  image_gradient_of(shape, output_gradient, kernel, image_gradient);
}
void double_image_gradient(const ConvolutionShape& shape, const double* output_gradient, const double* kernel,
                           double* image_gradient) {
  image_gradient_of(shape, output_gradient, kernel, image_gradient);
}
void float_kernel_gradient(const ConvolutionShape& shape, const float* image, const float* output_gradient,
                           float* kernel_gradient) {
  kernel_gradient_of(shape, image, output_gradient, kernel_gradient);
}
void double_kernel_gradient(const ConvolutionShape& shape, const double* image, const double* output_gradient,
                            double* kernel_gradient) {
  kernel_gradient_of(shape, image, output_gradient, kernel_gradient);
}

}  // namespace
}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::train::compute {

HWY_EXPORT(convolve_floats);
HWY_EXPORT(convolve_doubles);
HWY_EXPORT(float_image_gradient);
HWY_EXPORT(double_image_gradient);
HWY_EXPORT(float_kernel_gradient);
HWY_EXPORT(double_kernel_gradient);

void convolve(const ConvolutionShape& shape, const float* image, const float* kernel, float* output,
              const ConvolutionEnding<float>& ending) {
  HWY_DYNAMIC_DISPATCH(convolve_floats)(shape, image, kernel, output, ending);
}
void convolve(const ConvolutionShape& shape, const double* image, const double* kernel, double* output,
              const ConvolutionEnding<double>& ending) {
  HWY_DYNAMIC_DISPATCH(convolve_doubles)(shape, image, kernel, output, ending);
}

void convolution_image_gradient(const ConvolutionShape& shape, const float* output_gradient, const float* kernel,
                                float* image_gradient) {
  HWY_DYNAMIC_DISPATCH(float_image_gradient)(shape, output_gradient, kernel, image_gradient);
}
void convolution_image_gradient(const ConvolutionShape& shape, const double* output_gradient, const double* kernel,
                                double* image_gradient) {
  HWY_DYNAMIC_DISPATCH(double_image_gradient)(shape, output_gradient, kernel, image_gradient);
}

void convolution_kernel_gradient(const ConvolutionShape& shape, const float* image, const float* output_gradient,
                                 float* kernel_gradient) {
  HWY_DYNAMIC_DISPATCH(float_kernel_gradient)(shape, image, output_gradient, kernel_gradient);
}
void convolution_kernel_gradient(const ConvolutionShape& shape, const double* image, const double* output_gradient,
                                 double* kernel_gradient) {
  HWY_DYNAMIC_DISPATCH(double_kernel_gradient)(shape, image, output_gradient, kernel_gradient);
}

}  // namespace lockstep::train::compute
#endif
