// SPDX-License-Identifier: Apache-2.0
// Trains, evaluates and applies a layer, which is usually a Sequential, under the strategy in whose scope it was made.
//   Sequential model(Dense(1, {.input_shape = TensorShape{1}}));
//   model.compile("mse", "sgd");
//   model.fit(dataset, {.epochs = 2});
//   model.evaluate(dataset)["loss"];
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/fit.hpp"
#include "runtime/train/layer.hpp"
#include "runtime/train/losses.hpp"
#include "runtime/train/metrics.hpp"
#include "runtime/train/optimizer.hpp"

namespace lockstep::train {

// Holds a metric, or a word such as "accuracy", whose meaning the first batch shows.
class MetricChoice {
 public:
  MetricChoice(Metric metric) : metric_(std::move(metric)) {}  // NOLINT(google-explicit-constructor)
  // These measure values, not predictions beside labels.
  MetricChoice(metrics::Mean) = delete;
  MetricChoice(metrics::Sum) = delete;
  MetricChoice(std::string word) : word_(std::move(word)) {}  // NOLINT(google-explicit-constructor)
  MetricChoice(const char* word) : word_(word) {}             // NOLINT(google-explicit-constructor)
  const std::string& name() const { return metric_ ? metric_->name() : word_; }
  const std::optional<Metric>& metric() const { return metric_; }

 private:
  std::string word_;
  std::optional<Metric> metric_;
};

struct CompileOptions {
  std::optional<Loss> loss = {};            // Is an object, or a word such as "mse".
  std::optional<Optimizer> optimizer = {};  // Is an object, or a word such as "sgd".
  std::vector<MetricChoice> metrics = {};   // Are objects, or words such as "accuracy". They ignore sample weights.
  std::vector<MetricChoice> weighted_metrics = {};  // Take the sample weights into account.
};

// Is the second base of a layer that can be trained. It has no variables of its own.
class Model {
 public:
  virtual ~Model() = default;

  // Sets what fit() and evaluate() need. Throws Error usage, with TensorFlow's words, if the model, the optimizer or a
  // metric has variables of another strategy. It may be called outside of the model's scope.
  void compile(CompileOptions options);
  void compile(Loss loss, Optimizer optimizer, std::vector<MetricChoice> metrics = {}) {
    compile(CompileOptions{.loss = std::move(loss), .optimizer = std::move(optimizer), .metrics = std::move(metrics)});
  }

  // Trains. All processes of the strategy call it alike. An epoch's loss is the mean over its examples, of which each
  // counts once, whatever the batches and replicas. Throws Error usage for endless data without steps_per_epoch.
  History fit(const ModelData& data, const FitOptions& options = {});
  template <class X, class Y>
  History fit(const Tensor<X>& features, const Tensor<Y>& labels, const FitOptions& options = {}) {
    return fit(ModelData::view_of(features, labels), options);
  }
  // Returns the loss and the metrics. Each example counts once.
  Logs evaluate(const ModelData& data, const EvaluateOptions& options = {});
  template <class X, class Y>
  Logs evaluate(const Tensor<X>& features, const Tensor<Y>& labels, const EvaluateOptions& options = {}) {
    return evaluate(ModelData::view_of(features, labels), options);
  }
  // Returns the results of all replicas, in the order of the examples, on every process.
  Tensor<float> predict(const ModelData& data, const PredictOptions& options = {});
  template <class X>
  Tensor<float> predict(const Tensor<X>& features, const PredictOptions& options = {}) {
    return predict(ModelData::view_of(features), options);
  }

  // Ends fit() behind the current batch or epoch, in all processes, if one of them asks for it in a callback.
  void stop_training() { stops_->store(true); }

  // Returns the layer that is trained.
  virtual Layer& network() = 0;
  // Returns the strategy of the variables, or of the scope in which the model was made.
  Strategy& strategy();
  // True in the process that writes files and shows progress.
  bool is_chief();
  // Return what compile() has set. Throw Error usage before it.
  const Loss& loss();
  Optimizer& optimizer();

 protected:
  Model();
  Model(Model&&) noexcept = default;
  Model& operator=(Model&&) noexcept = default;

 private:
  friend class FitLoop;
  struct Compiled;
  Compiled& compiled();

  Strategy* made_in_;
  std::shared_ptr<Compiled> compiled_;
  bool has_told_ = false;  // The log has the line about replicas on GPUs.
  std::unique_ptr<std::atomic<bool>> stops_ = std::make_unique<std::atomic<bool>>(false);
};

// Trains a program's own layer, which must outlive it.
class ModelOfLayer final : public Model {
 public:
  explicit ModelOfLayer(Layer& layer) : layer_(layer) {}
  Layer& network() override { return layer_; }

 private:
  Layer& layer_;
};
// Trains a program's struct of layers, which must outlive it.
template <ModelStruct S>
class StructModel final : public StructLayer<S>, public Model {
 public:
  explicit StructModel(S& model, std::string name = "model") : StructLayer<S>(model, std::move(name)) {}
  Layer& network() override { return *this; }
};

}  // namespace lockstep::train
