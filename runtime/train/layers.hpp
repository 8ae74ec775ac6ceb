// SPDX-License-Identifier: Apache-2.0
// Names Keras' layers, and Sequential, which calls layers one after the other:
//   Sequential model(InputLayer({28, 28}), Flatten(), Dense(128, {.activation = relu}), Dropout(0.2), Dense(10));
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/train/layer.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/ops.hpp"

namespace lockstep::train {

// Returns the tensor itself.
TapeTensor linear(const TapeTensor& x);

// Names the function that a layer applies to its result: one of ops.hpp, a program's own, or a word.
class Activation {
 public:
  using Function = TapeTensor (*)(const TapeTensor& x);

  constexpr Activation() : Activation(train::linear) {}
  constexpr Activation(Function function) : function_(function) {}  // NOLINT(google-explicit-constructor)
  // Takes linear, relu, sigmoid, tanh, softmax or softplus. Throws Error usage for another word.
  Activation(std::string_view word);                                    // NOLINT(google-explicit-constructor)
  Activation(const char* word) : Activation(std::string_view(word)) {}  // NOLINT(google-explicit-constructor)

  TapeTensor operator()(const TapeTensor& x) const { return function_ == Function(train::linear) ? x : function_(x); }
  bool operator==(const Activation&) const = default;

  // Name the functions where a program has other ones of these names.
  static const Activation linear, relu, sigmoid, tanh, softmax, softplus;

 private:
  Function function_;
};

// Holds a number of rows and of columns: 3 or {3, 2}.
struct Size2D {
  Size2D(std::int64_t both) : rows(both), columns(both) {}  // NOLINT(google-explicit-constructor)
  Size2D(std::int64_t of_rows, std::int64_t of_columns) : rows(of_rows), columns(of_columns) {}
  std::int64_t rows;
  std::int64_t columns;
};

// Names the shape of a model's examples. It comes first in a Sequential, which then builds its layers at once.
class InputLayer : public Layer {
 public:
  explicit InputLayer(TensorShape shape, std::string name = {})
      : Layer("InputLayer", {.name = std::move(name), .input_shape = std::move(shape)}) {}
  TensorShape output_shape(const TensorShape& example) const override { return example; }

 protected:
  TapeTensor call(const TapeTensor& x, bool /*training*/) override { return x; }
};

struct DenseOptions {
  Activation activation = linear;
  bool use_bias = true;
  Initializer kernel_initializer = glorot_uniform();
  Initializer bias_initializer = zeros();
  std::optional<TensorShape> input_shape = {};
  std::string name = {};
  bool trainable = true;
};
// Returns activation(x kernel + bias) of the last axis.
class Dense : public Layer {
 public:
  explicit Dense(std::int64_t units, DenseOptions options = {});
  Dense(std::int64_t units, Activation activation) : Dense(units, DenseOptions{.activation = activation}) {}
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  std::int64_t units_;
  DenseOptions options_;
};

struct Conv2DOptions {
  Activation activation = linear;
  Size2D strides = 1;
  Padding padding = Padding::valid;
  bool use_bias = true;
  Initializer kernel_initializer = glorot_uniform();
  Initializer bias_initializer = zeros();
  std::optional<TensorShape> input_shape = {};
  std::string name = {};
  bool trainable = true;
};
// Convolves images of shape (batch, rows, columns, channels).
class Conv2D : public Layer {
 public:
  Conv2D(std::int64_t filters, Size2D kernel_size, Conv2DOptions options = {});
  Conv2D(std::int64_t filters, Size2D kernel_size, Activation activation)
      : Conv2D(filters, kernel_size, Conv2DOptions{.activation = activation}) {}
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  std::int64_t filters_;
  Size2D kernel_size_;
  Conv2DOptions options_;
};

struct MaxPool2DOptions {
  std::optional<Size2D> strides = {};  // Defaults to the size of the window.
  Padding padding = Padding::valid;
  std::string name = {};
};
class MaxPool2D : public Layer {
 public:
  explicit MaxPool2D(Size2D pool_size = 2, const MaxPool2DOptions& options = {});
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  Size2D pool_size_;
  Size2D strides_;
  Padding padding_;
};
using MaxPooling2D = MaxPool2D;

// Makes each example a row.
class Flatten : public Layer {
 public:
  explicit Flatten(LayerOptions options = {}) : Layer("Flatten", std::move(options)) {}
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  TapeTensor call(const TapeTensor& x, bool training) override;
};

// Gives each example another shape. One length may be -1: it follows from the others.
class Reshape : public Layer {
 public:
  explicit Reshape(std::vector<std::int64_t> target_shape, LayerOptions options = {})
      : Layer("Reshape", std::move(options)), target_(std::move(target_shape)) {}
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  std::vector<std::int64_t> target_;
};

// Applies a function as a layer of its own.
class ActivationLayer : public Layer {
 public:
  explicit ActivationLayer(Activation activation, LayerOptions options = {})
      : Layer("Activation", std::move(options)), activation_(activation) {}
  TensorShape output_shape(const TensorShape& example) const override { return example; }

 protected:
  TapeTensor call(const TapeTensor& x, bool /*training*/) override { return activation_(x); }

 private:
  Activation activation_;
};

struct DropoutOptions {
  std::optional<std::uint64_t> seed = {};  // Without it, a seed of the program.
  std::string name = {};
};
// Sets a share of the elements to 0 in training. The draws follow from the seed, the replica's number in the sync
// group, and the number of the replica's calls.
class Dropout : public Layer {
 public:
  explicit Dropout(double rate, const DropoutOptions& options = {});
  TensorShape output_shape(const TensorShape& example) const override { return example; }

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  struct CallCounts;
  DropoutKey next_key();

  double rate_;
  std::optional<std::uint64_t> seed_;
  std::shared_ptr<CallCounts> calls_;
};

struct EmbeddingOptions {
  Initializer embeddings_initializer = random_uniform();
  std::optional<TensorShape> input_shape = {};
  std::string name = {};
  bool trainable = true;
};
// Returns a row of a table for each number. The gradient of the table has these rows only.
class Embedding : public Layer {
 public:
  Embedding(std::int64_t input_dim, std::int64_t output_dim, EmbeddingOptions options = {});
  TensorShape output_shape(const TensorShape& example) const override;

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  std::int64_t rows_;
  std::int64_t width_;
  Initializer initializer_;
};

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  bool synchronized = false;  // Takes the statistics of all replicas' examples together.
  std::string name = {};
  bool trainable = true;
};
// Normalizes over all axes but the last one: in training by the batch, otherwise by moving averages. Each replica
// moves its own averages, and their mean is read for all. A layer that is not trainable uses the averages in training
// too.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options = {});
  TensorShape output_shape(const TensorShape& example) const override { return example; }

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  // Returns the weight, or a constant if the layer has none of that kind.
  TapeTensor scale_of(const TapeTensor& x) const;
  TapeTensor offset_of(const TapeTensor& x) const;
  // Moves an average towards the value of a batch.
  void move(const AnyVariable& average, const TapeTensor& value) const;
  const AnyVariable& moving(std::size_t which) const;

  BatchNormalizationOptions options_;
};

struct SequentialOptions {
  std::string name = {};
};
// Calls its layers in order. It is built at once if the first layer names a shape, otherwise by its first call.
class Sequential : public Layer, public Model {
 public:
  template <std::derived_from<Layer>... L>
  explicit Sequential(L... layers) : Sequential(SequentialOptions{}, std::move(layers)...) {}
  template <std::derived_from<Layer>... L>
  explicit Sequential(const SequentialOptions& options, L... layers) : Layer("Sequential", {.name = options.name}) {
    (append(std::make_unique<L>(std::move(layers))), ...);
    build_if_known();
  }
  Sequential(Sequential&&) noexcept = default;
  Sequential& operator=(Sequential&&) noexcept = default;

  // Adds a layer at the end, and builds it if the model is built. Returns it.
  template <std::derived_from<Layer> L>
  L& add(L layer) {
    auto owned = std::make_unique<L>(std::move(layer));
    L& added = *owned;
    append(std::move(owned));
    build_if_known();
    return added;
  }
  std::vector<Layer*> layers() const override;
  TensorShape output_shape(const TensorShape& example) const override;
  Layer& network() override { return *this; }

 protected:
  void make_variables(const TensorShape& example) override;
  TapeTensor call(const TapeTensor& x, bool training) override;

 private:
  void append(std::unique_ptr<Layer> layer);
  void build_if_known();

  std::vector<std::unique_ptr<Layer>> layers_;
  std::optional<TensorShape> shape_;  // Is that of the input, if a layer names it.
};

}  // namespace lockstep::train
