// SPDX-License-Identifier: Apache-2.0
// Implements Keras' layers by ops.
#include "runtime/train/layers.hpp"

#include <map>

#include "runtime/data/random.hpp"
#include "runtime/train/convert.hpp"
#include "runtime/variable.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

struct NamedActivation {
  std::string_view word;
  Activation::Function function;
};
constexpr NamedActivation named_activations[] = {
    {"linear", linear}, {"relu", relu},       {"sigmoid", sigmoid},
    {"tanh", tanh},     {"softmax", softmax}, {"softplus", softplus},
};

// Returns a shape with other axes before its last one.
TensorShape with_last(const TensorShape& shape, std::int64_t length) { return shape.with(-1, length); }

// Returns the lengths of a batch of examples.
std::vector<std::int64_t> batch_lengths(std::int64_t examples, const TensorShape& example) {
  std::vector<std::int64_t> all{examples};
  all.insert(all.end(), example.lengths().begin(), example.lengths().end());
  return all;
}

// Returns the number of places of a window along one axis. Throws Error usage if there is none.
std::int64_t window_places(std::int64_t length, std::int64_t window, std::int64_t stride, Padding padding) {
  if (padding == Padding::same) return (length + stride - 1) / stride;
  if (window > length)
    throw Error(Code::usage,
                text("Computed output size would be negative: a window of ", window, " over a length of ", length),
                "use Padding::same, or a smaller window");
  return (length - window) / stride + 1;
}

TensorShape windows_shape(const TensorShape& example, const Size2D& window, const Size2D& strides, Padding padding,
                          std::int64_t channels) {
  return {window_places(example[0], window.rows, strides.rows, padding),
          window_places(example[1], window.columns, strides.columns, padding), channels};
}

}  // namespace

TapeTensor linear(const TapeTensor& x) { return x; }

const Activation Activation::linear(train::linear);
const Activation Activation::relu(train::relu);
const Activation Activation::sigmoid(train::sigmoid);
const Activation Activation::tanh(train::tanh);
const Activation Activation::softmax(train::softmax);
const Activation Activation::softplus(train::softplus);

Activation::Activation(std::string_view word) : function_(nullptr) {
  for (const NamedActivation& each : named_activations) {
    if (each.word == word) function_ = each.function;
  }
  if (function_ == nullptr)
    throw Error(Code::usage, text("an activation of the name '", printable(word), "'"),
                "use linear, relu, sigmoid, tanh, softmax, or softplus");
}

Dense::Dense(std::int64_t units, DenseOptions options)
    : Layer("Dense", {.name = options.name, .input_shape = options.input_shape, .trainable = options.trainable}),
      units_(units),
      options_(std::move(options)) {
  if (units_ <= 0)
    throw Error(Code::usage,
                text("Received an invalid value for `units`, expected a positive integer. Received: units=", units_),
                "give the number of outputs");
}

TensorShape Dense::output_shape(const TensorShape& example) const { return with_last(example, units_); }

void Dense::make_variables(const TensorShape& example) {
  if (example.rank() == 0) check_rank(example, 2);
  add_weight("kernel", {example[-1], units_}, options_.kernel_initializer);
  if (options_.use_bias) add_weight("bias", {units_}, options_.bias_initializer);
}

TapeTensor Dense::call(const TapeTensor& x, bool /*training*/) {
  const TapeTensor kernel = weight(0);
  check_last_axis(x.shape().without(0), kernel.shape()[0]);
  const bool is_matrix = x.shape().rank() == 2;
  const auto rows = static_cast<std::int64_t>(x.shape().outside(-1));
  const TapeTensor matrix = is_matrix ? x : reshape(x, {rows, kernel.shape()[0]});
  const bool is_relu = options_.activation == Activation(relu);
  const FusedActivation fused = is_relu ? FusedActivation::relu : FusedActivation::none;
  const TapeTensor result = options_.use_bias ? dense(matrix, kernel, weight(1), fused) : matmul(matrix, kernel);
  const TapeTensor shaped = is_matrix ? result : reshape(result, with_last(x.shape(), units_).lengths());
  return is_relu && options_.use_bias ? shaped : options_.activation(shaped);
}

Conv2D::Conv2D(std::int64_t filters, Size2D kernel_size, Conv2DOptions options)
    : Layer("Conv2D", {.name = options.name, .input_shape = options.input_shape, .trainable = options.trainable}),
      filters_(filters),
      kernel_size_(kernel_size),
      options_(std::move(options)) {
  if (filters_ <= 0 || kernel_size_.rows <= 0 || kernel_size_.columns <= 0 || options_.strides.rows <= 0 ||
      options_.strides.columns <= 0)
    throw Error(Code::usage, "Conv2D with a number of filters, a kernel or strides that are not positive",
                "as Conv2D(32, 3, {.strides = 2})");
}

TensorShape Conv2D::output_shape(const TensorShape& example) const {
  check_rank(example, 4);
  return windows_shape(example, kernel_size_, options_.strides, options_.padding, filters_);
}

void Conv2D::make_variables(const TensorShape& example) {
  check_rank(example, 4);
  add_weight("kernel", {kernel_size_.rows, kernel_size_.columns, example[2], filters_}, options_.kernel_initializer);
  if (options_.use_bias) add_weight("bias", {filters_}, options_.bias_initializer);
}

TapeTensor Conv2D::call(const TapeTensor& x, bool /*training*/) {
  const TensorShape example = x.shape().without(0);
  check_rank(example, 4);
  const TapeTensor kernel = weight(0);
  check_last_axis(example, kernel.shape()[2]);
  const ConvolutionOptions how{options_.strides.rows, options_.strides.columns, options_.padding};
  if (!options_.use_bias) return options_.activation(conv2d(x, kernel, how));
  if (options_.activation == Activation(relu)) return conv2d(x, kernel, weight(1), how, FusedActivation::relu);
  return options_.activation(conv2d(x, kernel, weight(1), how));
}

MaxPool2D::MaxPool2D(Size2D pool_size, const MaxPool2DOptions& options)
    : Layer("MaxPooling2D", {.name = options.name}),
      pool_size_(pool_size),
      strides_(options.strides.value_or(pool_size)),
      padding_(options.padding) {
  if (pool_size_.rows <= 0 || pool_size_.columns <= 0 || strides_.rows <= 0 || strides_.columns <= 0)
    throw Error(Code::usage, "MaxPool2D with a window or strides that are not positive",
                "as MaxPool2D(2, {.strides = 2})");
}

TensorShape MaxPool2D::output_shape(const TensorShape& example) const {
  check_rank(example, 4);
  return windows_shape(example, pool_size_, strides_, padding_, example[2]);
}

TapeTensor MaxPool2D::call(const TapeTensor& x, bool /*training*/) {
  check_rank(x.shape().without(0), 4);
  return max_pool(x, {pool_size_.rows, pool_size_.columns, strides_.rows, strides_.columns, padding_});
}

TensorShape Flatten::output_shape(const TensorShape& example) const {
  return {static_cast<std::int64_t>(example.count())};
}

TapeTensor Flatten::call(const TapeTensor& x, bool /*training*/) {
  return reshape(x, batch_lengths(x.shape()[0], output_shape(x.shape().without(0))));
}

TensorShape Reshape::output_shape(const TensorShape& example) const {
  std::vector<std::int64_t> lengths = target_;
  std::int64_t known = 1;
  std::int64_t* unknown = nullptr;
  for (std::int64_t& each : lengths) {
    if (each == -1 && unknown == nullptr)
      unknown = &each;
    else
      known *= each;
  }
  const auto whole = static_cast<std::int64_t>(example.count());
  if (unknown != nullptr && known > 0) *unknown = whole / known;
  if (known <= 0 || (unknown != nullptr ? *unknown * known : known) != whole)
    throw Error(Code::usage,
                text("The total size of the tensor must be unchanged. Received: input_shape=", example.to_string(),
                     ", and a target of ", known, unknown != nullptr ? " elements a part" : " elements"),
                "give lengths with that product; one of them may be -1");
  return TensorShape(std::move(lengths));
}

TapeTensor Reshape::call(const TapeTensor& x, bool /*training*/) {
  return reshape(x, batch_lengths(x.shape()[0], output_shape(x.shape().without(0))));
}

// Counts the calls in training of each replica, by its number in the sync group.
struct Dropout::CallCounts {
  std::mutex mutex;
  std::map<int, std::uint64_t> of_replica;
};

Dropout::Dropout(double rate, const DropoutOptions& options)
    : Layer("Dropout", {.name = options.name}),
      rate_(rate),
      seed_(options.seed),
      calls_(std::make_shared<CallCounts>()) {
  if (!(rate >= 0 && rate <= 1))
    throw Error(Code::usage,
                text("Invalid value received for argument `rate`. Expected a float value between 0 and 1. Received: ",
                     "rate=", rate),
                "give the share of elements to drop");
}

void Dropout::make_variables(const TensorShape& /*example*/) {
  if (!seed_) seed_ = next_seed();
}

DropoutKey Dropout::next_key() {
  ReplicaContext* const replica = replica_context();
  const int number = replica == nullptr ? 0 : replica->replica_id_in_sync_group();
  const std::lock_guard lock(calls_->mutex);
  return {data::random_bits({*seed_, 2}, static_cast<std::uint64_t>(number)), calls_->of_replica[number]++};
}

TapeTensor Dropout::call(const TapeTensor& x, bool training) {
  if (!training || rate_ == 0) return x;
  return rate_ == 1 ? x * TapeTensor(0.F) : dropout(x, rate_, next_key());
}

Embedding::Embedding(std::int64_t input_dim, std::int64_t output_dim, EmbeddingOptions options)
    : Layer("Embedding", {.name = options.name, .input_shape = options.input_shape, .trainable = options.trainable}),
      rows_(input_dim),
      width_(output_dim),
      initializer_(std::move(options.embeddings_initializer)) {}

TensorShape Embedding::output_shape(const TensorShape& example) const {
  std::vector<std::int64_t> lengths = example.lengths();
  lengths.push_back(width_);
  return TensorShape(std::move(lengths));
}

void Embedding::make_variables(const TensorShape& /*example*/) {
  add_weight("embeddings", {rows_, width_}, initializer_);
}

TapeTensor Embedding::call(const TapeTensor& x, bool /*training*/) {
  const bool is_index = x.type() == DataType::i32 || x.type() == DataType::i64;
  const TapeTensor indices = is_index ? x : TapeTensor(converted<std::int64_t>(x.tensor()));
  const TapeTensor all(indices.tensor().reshaped({static_cast<std::int64_t>(x.size())}));
  return reshape(gather(weight(0), all), output_shape(x.shape()).lengths());
}

BatchNormalization::BatchNormalization(const BatchNormalizationOptions& options)
    : Layer("BatchNormalization", {.name = options.name, .trainable = options.trainable}), options_(options) {}

void BatchNormalization::make_variables(const TensorShape& example) {
  if (example.rank() == 0) check_rank(example, 2);
  const TensorShape channels{example[-1]};
  const WeightOptions average{false, Synchronization::on_read, Aggregation::mean};
  if (options_.scale) add_weight("gamma", channels, ones());
  if (options_.center) add_weight("beta", channels, zeros());
  add_weight("moving_mean", channels, zeros(), average);
  add_weight("moving_variance", channels, ones(), average);
}

const AnyVariable& BatchNormalization::moving(std::size_t which) const {
  return weight(which + (options_.scale ? 1U : 0U) + (options_.center ? 1U : 0U));
}

TapeTensor BatchNormalization::scale_of(const TapeTensor& x) const {
  return options_.scale ? TapeTensor(weight(0)) : TapeTensor(Tensor<float>({x.shape()[-1]}, 1.F));
}

TapeTensor BatchNormalization::offset_of(const TapeTensor& x) const {
  return options_.center ? TapeTensor(weight(options_.scale ? 1 : 0))
                         : TapeTensor(Tensor<float>(TensorShape{x.shape()[-1]}));
}

void BatchNormalization::move(const AnyVariable& average, const TapeTensor& value) const {
  Tensor<float> next = value_of(average).to<float>();
  const std::span<const float> batch = value.span<float>();
  const auto kept = static_cast<float>(options_.momentum);
  const auto moved = static_cast<float>(1 - options_.momentum);
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = next[i] * kept + batch[i] * moved;
  average.as<float>().assign(next);
}

TapeTensor BatchNormalization::call(const TapeTensor& x, bool training) {
  check_last_axis(x.shape().without(0), moving(0).shape()[0]);
  const TapeTensor scale = scale_of(x);
  const TapeTensor offset = offset_of(x);
  if (!training || !trainable()) return batch_norm(x, scale, offset, moving(0), moving(1), options_.epsilon);
  ReplicaContext* const replica = replica_context();
  const bool is_of_all = options_.synchronized && replica != nullptr && replica->num_replicas_in_sync() > 1;
  if (!is_of_all && x.size() == 0) return x * scale + offset;  // Without examples there are no statistics.
  const NormalizedBatch batch = is_of_all ? batch_norm(*replica, x, scale, offset, options_.epsilon)
                                          : batch_norm(x, scale, offset, options_.epsilon);
  move(moving(0), batch.mean);
  move(moving(1), batch.variance);
  return batch.result;
}

std::vector<Layer*> Sequential::layers() const {
  std::vector<Layer*> all;
  for (const std::unique_ptr<Layer>& each : layers_) all.push_back(each.get());
  return all;
}

void Sequential::append(std::unique_ptr<Layer> layer) {
  const bool is_input = dynamic_cast<InputLayer*>(layer.get()) != nullptr;
  if (is_input && (!layers_.empty() || shape_))
    throw Error(Code::usage,
                text("Sequential model '", printable(name()), "' has already been configured. You cannot add a ",
                     "different Input layer to it"),
                "give the InputLayer first");
  if (layers_.empty() && layer->input_shape()) shape_ = layer->input_shape();
  if (is_input) return;
  layers_.push_back(std::move(layer));
  try {
    name_layers(layers());
  } catch (const Error&) {
    layers_.pop_back();
    throw;
  }
  if (!is_built()) return;
  TensorShape shape = *built_shape();
  for (const std::unique_ptr<Layer>& each : layers_) {
    if (!each->is_built()) each->build(shape);
    shape = each->output_shape(shape);
  }
}

void Sequential::build_if_known() {
  if (shape_ && !layers_.empty() && !is_built()) build(*shape_);
}

TensorShape Sequential::output_shape(const TensorShape& example) const {
  TensorShape shape = example;
  for (const std::unique_ptr<Layer>& each : layers_) shape = each->output_shape(shape);
  return shape;
}

void Sequential::make_variables(const TensorShape& example) {
  TensorShape shape = example;
  for (const std::unique_ptr<Layer>& each : layers_) {
    if (!each->is_built()) each->build(shape);
    shape = each->output_shape(shape);
  }
}

TapeTensor Sequential::call(const TapeTensor& x, bool training) {
  TapeTensor result = x;
  for (const std::unique_ptr<Layer>& each : layers_) result = (*each)(result, training);
  return result;
}

}  // namespace lockstep::train
