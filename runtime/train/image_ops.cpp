// SPDX-License-Identifier: Apache-2.0
// Has the ops that move windows over images.
#include "runtime/train/compute/convolution.hpp"
#include "runtime/train/compute/element_wise.hpp"
#include "runtime/train/compute/max_pooling.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

std::size_t length_of(const AnyTensor& tensor, int axis) { return static_cast<std::size_t>(tensor.shape()[axis]); }

// Throws Error usage for tensors without these numbers of axes, or of different types.
void check_image_inputs(std::string_view op, std::span<const AnyTensor> inputs) {
  if (inputs[0].shape().rank() != 4)
    refuse_inputs(op, text("images of shape ", inputs[0].shape().to_string()),
                  "give the axes batch, rows, columns and channels");
  for (const AnyTensor& each : inputs) {
    if (each.type() != inputs[0].type())
      refuse_inputs(op, text("tensors of ", to_string(inputs[0].type()), " and ", to_string(each.type())),
                    "convert one of them: cast<float>(tensor)");
  }
}
// Throws Error usage for sizes and strides that are not positive.
void check_window(std::string_view op, std::string_view which, std::int64_t rows, std::int64_t columns) {
  if (rows < 1 || columns < 1)
    refuse_inputs(op, text(which, " of ", rows, " rows and ", columns, " columns"), "give positive numbers");
}
// Throws Error usage for a window that has no place.
void check_places(std::string_view op, const compute::ImageShape& image, const compute::Window& window) {
  if (window.padding == compute::Padding::valid && (window.height > image.height || window.width > image.width))
    refuse_inputs(op,
                  text("a window of ", window.height, " x ", window.width, " elements in images of ", image.height,
                       " x ", image.width),
                  "give a smaller window, or pad the images: Padding::same");
}

compute::ImageShape image_of(const AnyTensor& images) {
  return {length_of(images, 0), length_of(images, 1), length_of(images, 2), length_of(images, 3)};
}
TensorShape shape_of(const compute::ImageShape& image) {
  return {static_cast<std::int64_t>(image.batch), static_cast<std::int64_t>(image.height),
          static_cast<std::int64_t>(image.width), static_cast<std::int64_t>(image.channels)};
}
compute::Padding padding_of(std::int64_t padding) {
  return padding == static_cast<std::int64_t>(Padding::same) ? compute::Padding::same : compute::Padding::valid;
}

// The integers are the strides, the padding, and 1 for relu.
compute::ConvolutionShape convolution_of(const OpAttributes& attributes, const AnyTensor& images,
                                         const AnyTensor& kernel) {
  const std::vector<std::int64_t>& all = attributes.integers;
  return {image_of(images),
          {length_of(kernel, 0), length_of(kernel, 1), static_cast<std::size_t>(all[0]),
           static_cast<std::size_t>(all[1]), padding_of(all[2])},
          length_of(kernel, 3)};
}
TensorShape conv2d_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  check_image_inputs("conv2d", inputs);
  const TensorShape& images = inputs[0].shape();
  const TensorShape& kernel = inputs[1].shape();
  if (kernel.rank() != 4 || kernel[2] != images[3])
    refuse_inputs("conv2d", text("a kernel of shape ", kernel.to_string(), " for images of shape ", images.to_string()),
                  text("give the axes rows, columns, channels and filters, with ", images[3], " channels"));
  check_window("conv2d", "a kernel", kernel[0], kernel[1]);
  check_window("conv2d", "a stride", attributes.integers[0], attributes.integers[1]);
  if (inputs.size() == 3 && inputs[2].shape() != TensorShape{kernel[3]})
    refuse_inputs(
        "conv2d",
        text("a bias of shape ", inputs[2].shape().to_string(), " for a kernel of shape ", kernel.to_string()),
        text("give a bias of shape (", kernel[3], ",)"));
  const compute::ConvolutionShape shape = convolution_of(attributes, inputs[0], inputs[1]);
  check_places("conv2d", shape.image, shape.window);
  return shape_of(shape.output());
}
void conv2d_forward(OpCall& call) {
  const compute::ConvolutionShape shape = convolution_of(call.attributes, call.inputs[0], call.inputs[1]);
  with_float_type("conv2d", call.output.type(), [&]<class T>(T /*type*/) {
    compute::convolve(shape, call.inputs[0].span<T>().data(), call.inputs[1].span<T>().data(),
                      call.output.span<T>().data(),
                      {.bias = call.inputs.size() == 3 ? call.inputs[2].span<T>().data() : nullptr,
                       .relu = call.attributes.integers[3] != 0});
  });
}
void conv2d_backward(BackwardCall& call) {
  const compute::ConvolutionShape shape = convolution_of(call.attributes(), call.input(0), call.input(1));
  with_float_type("conv2d", call.output().type(), [&]<class T>(T /*type*/) {
    AnyTensor gradient = call.gradient();
    if (call.attributes().integers[3] != 0) {
      gradient = uninitialized_tensor(gradient.type(), gradient.shape());
      compute::relu_gradient(call.output().span<T>().data(), call.gradient().span<T>().data(),
                             gradient.span<T>().data(), gradient.size());
    }
    const T* const dy = gradient.span<T>().data();
    if (call.wants(0))
      compute::convolution_image_gradient(shape, dy, call.input(1).span<T>().data(), call.into(0).span<T>().data());
    if (call.wants(1))
      compute::convolution_kernel_gradient(shape, call.input(0).span<T>().data(), dy, call.into(1).span<T>().data());
    if (call.inputs() == 3 && call.wants(2))
      compute::column_sums(dy, gradient.size() / std::max<std::size_t>(1, shape.filters), shape.filters,
                           call.into(2).span<T>().data());
  });
}
constexpr Op conv2d_op = {"conv2d", conv2d_shape, conv2d_forward, conv2d_backward};

OpAttributes convolution_attributes(const ConvolutionOptions& options, FusedActivation activation) {
  return {.integers = {options.stride_rows, options.stride_columns, static_cast<std::int64_t>(options.padding),
                       activation == FusedActivation::relu ? 1 : 0}};
}

// The integers are the window, the strides and the padding.
compute::MaxPoolShape pool_of(const OpAttributes& attributes, const AnyTensor& images) {
  const std::vector<std::int64_t>& all = attributes.integers;
  return {image_of(images),
          {static_cast<std::size_t>(all[0]), static_cast<std::size_t>(all[1]), static_cast<std::size_t>(all[2]),
           static_cast<std::size_t>(all[3]), padding_of(all[4])}};
}
TensorShape max_pool_shape(const OpAttributes& attributes, std::span<const AnyTensor> inputs) {
  check_image_inputs("max_pool", inputs);
  check_window("max_pool", "a window", attributes.integers[0], attributes.integers[1]);
  check_window("max_pool", "a stride", attributes.integers[2], attributes.integers[3]);
  const compute::MaxPoolShape shape = pool_of(attributes, inputs[0]);
  check_places("max_pool", shape.image, shape.window);
  return shape_of(shape.output());
}
// Saves the place of each maximum.
void max_pool_forward(OpCall& call) {
  call.saved = {uninitialized_tensor(DataType::u32, call.output.shape())};
  with_float_type("max_pool", call.output.type(), [&]<class T>(T /*type*/) {
    compute::max_pool(pool_of(call.attributes, call.inputs[0]), call.inputs[0].span<T>().data(),
                      call.output.span<T>().data(), call.saved[0].span<std::uint32_t>().data());
  });
}
void max_pool_backward(BackwardCall& call) {
  with_float_type("max_pool", call.output().type(), [&]<class T>(T /*type*/) {
    compute::max_pool_gradient(pool_of(call.attributes(), call.input(0)), call.gradient().span<T>().data(),
                               call.saved(0).span<std::uint32_t>().data(), call.into(0).span<T>().data());
  });
}
constexpr Op max_pool_op = {"max_pool", max_pool_shape, max_pool_forward, max_pool_backward};

}  // namespace

TapeTensor conv2d(const TapeTensor& images, const TapeTensor& kernel, const ConvolutionOptions& options) {
  return apply(conv2d_op, {images, kernel}, convolution_attributes(options, FusedActivation::none));
}
TapeTensor conv2d(const TapeTensor& images, const TapeTensor& kernel, const TapeTensor& bias,
                  const ConvolutionOptions& options, FusedActivation activation) {
  return apply(conv2d_op, {images, kernel, bias}, convolution_attributes(options, activation));
}

TapeTensor max_pool(const TapeTensor& images, const PoolOptions& options) {
  return apply(max_pool_op, {images},
               {.integers = {options.rows, options.columns, options.stride_rows, options.stride_columns,
                             static_cast<std::int64_t>(options.padding)}});
}

}  // namespace lockstep::train
