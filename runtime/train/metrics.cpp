// SPDX-License-Identifier: Apache-2.0
// Implements metrics, with Keras' treatment of weights.
#include "runtime/train/metrics.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/train/convert.hpp"
#include "runtime/train/host_part.hpp"
#include "runtime/train/losses.hpp"
#include "runtime/train/tape.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

std::size_t examples_of(const TensorShape& shape) { return shape.rank() == 0 ? 1 : static_cast<std::size_t>(shape[0]); }

// Gives each element of a batch its weight. Weights have one number for each example, or for each element.
class ElementWeights {
 public:
  ElementWeights(const TapeTensor* weights, const TensorShape& of) : inside_(of.count()) {
    if (weights == nullptr) return;
    const std::size_t examples = examples_of(of);
    weights_ = converted<double>(weights->tensor());
    if (weights_->size() == of.count())
      inside_ = 1;
    else if (weights_->size() == examples && examples > 0)
      inside_ = of.count() / examples;
    else
      throw Error(
          Code::usage,
          text("sample weights of shape ", weights_->shape().to_string(), " for values of shape ", of.to_string()),
          "give one weight for each example");
  }
  double at(std::size_t element) const { return weights_ ? (*weights_)[element / inside_] : 1; }

 private:
  std::optional<Tensor<double>> weights_;
  std::size_t inside_;  // Counts the elements of each weight.
};

void check_batch(const TensorShape& labels, const TensorShape& predictions) {
  if (labels.count() == predictions.count() && examples_of(labels) == examples_of(predictions)) return;
  throw Error(Code::usage,
              text("labels of shape ", labels.to_string(), " and predictions of shape ", predictions.to_string()),
              "give one label for each prediction");
}

// Adds the mean of each example's values, and its weight. A sum of values counts all of them.
void add_values(const TapeTensor& values, const TapeTensor* sample_weight, bool is_mean, std::span<double> sums) {
  const ElementWeights weights(sample_weight, values.shape());
  const Tensor<double> all = converted<double>(values.tensor());
  const std::size_t examples = examples_of(values.shape());
  const std::size_t inside = examples == 0 ? 0 : all.size() / examples;
  for (std::size_t example = 0; example < examples; ++example) {
    double sum = 0;
    double weight = 0;
    for (std::size_t i = example * inside; i < (example + 1) * inside; ++i) {
      sum += weights.at(i) * all[i];
      weight += weights.at(i);
    }
    const double share = is_mean && inside > 0 ? static_cast<double>(inside) : 1;
    sums[0] += sum / share;
    if (is_mean) sums[1] += weight / share;
  }
}

// Calls `add(label, prediction, weight)` for each element. Both are true for the class 1.
template <class F>
void for_each_decision(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight,
                       float threshold, F&& add) {
  check_batch(labels.shape(), predictions.shape());
  const ElementWeights weights(sample_weight, predictions.shape());
  const Tensor<float> truth = converted<float>(labels.tensor());
  const Tensor<float> guess = converted<float>(predictions.tensor());
  for (std::size_t i = 0; i < guess.size(); ++i) add(truth[i] > 0.5F, guess[i] > threshold, weights.at(i));
}

// Returns the first of the greatest numbers of each row.
std::vector<std::int64_t> best_classes(const TapeTensor& scores) {
  const Tensor<float> all = converted<float>(scores.tensor());
  if (all.shape().rank() == 0 || all.shape()[all.shape().rank() - 1] == 0)
    throw Error(Code::usage, text("predictions of classes with shape ", all.shape().to_string()),
                "give a number for each class along the last axis");
  return greatest_of_rows(all);
}

// Returns 1 for each row whose classes are equal.
TapeTensor equal_classes(const std::vector<std::int64_t>& labels, const TapeTensor& predictions) {
  const std::vector<std::int64_t> guesses = best_classes(predictions);
  if (labels.size() != guesses.size())
    throw Error(Code::usage, text(labels.size(), " labels for ", guesses.size(), " predictions"),
                "give one label for each prediction");
  std::vector<std::int64_t> lengths = predictions.shape().lengths();
  lengths.pop_back();
  Tensor<float> all((TensorShape(std::move(lengths))));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = labels[i] == guesses[i] ? 1.F : 0.F;
  return all;
}

std::string name_or(const std::string& name, std::string_view otherwise) {
  return name.empty() ? std::string(otherwise) : name;
}

}  // namespace

class Metric::State {
 public:
  State(Adder add, Form form, std::string name)
      : add_(std::move(add)),
        form_(form),
        name_(std::move(name)),
        sums_(Tensor<double>(TensorShape{form == Form::quotient ? 2 : 1}),
              {.name = name_, .synchronization = Synchronization::on_read, .aggregation = Aggregation::sum}) {}

  void update(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight) {
    const Tape::Pause pause;
    std::vector<double> sums(sums_.shape().count());
    add_(labels, predictions, sample_weight, sums);
    change("update", [&](std::span<double> mine) {
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += sums[i];
    });
  }
  void reset() {
    const bool is_mine = replica_context() != nullptr && &replica_context()->strategy() == &sums_.strategy();
    if (!is_mine) return sums_.assign(Tensor<double>(sums_.shape()));
    change("reset", [](std::span<double> mine) { std::ranges::fill(mine, 0.0); });
  }
  float result_of(std::span<const double> sums) const {
    if (form_ == Form::sum) return static_cast<float>(sums[0]);
    return sums[1] == 0 ? 0 : static_cast<float>(sums[0] / sums[1]);
  }
  const Variable<double>& sums() const { return sums_; }
  const std::string& name() const { return name_; }

 private:
  // Lets a function change the part of the caller.
  template <class F>
  void change(std::string_view call, F&& function) {
    Strategy& strategy = sums_.strategy();
    const ReplicaContext* const replica = replica_context();
    const bool is_replica = replica != nullptr && &replica->strategy() == &strategy;
    if (!is_replica && (strategy.num_replicas_in_sync() > 1 || (replica != nullptr && has_strategy())))
      throw Error(Code::usage,
                  text(call, " of metric '", printable(name_), "' of ", strategy.describe(),
                       is_other(replica) ? ", in a replica of another strategy" : ", in cross-replica context"),
                  "make the metric in the strategy's scope, and call it in the function of strategy.run()");
    HostPart<double> part(sums_, AnyVariable(sums_).layout().part_of[is_replica ? local_of(*replica) : 0]);
    function(part.span());
    part.put_back();
  }
  static bool is_other(const ReplicaContext* replica) { return replica != nullptr && has_strategy(); }
  static std::size_t local_of(const ReplicaContext& replica) { return static_cast<std::size_t>(replica.local_id()); }

  Adder add_;
  Form form_;
  std::string name_;
  Variable<double> sums_;
};

Metric::Metric(Adder add, Form form, std::string name)
    : state_(std::make_shared<State>(std::move(add), form, std::move(name))) {}

Metric::Metric(Function function, std::string name)
    : Metric([function = std::move(function)](
                 const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight,
                 std::span<double> sums) { add_values(function(labels, predictions), sample_weight, true, sums); },
             Form::quotient, std::move(name)) {}

void Metric::update(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight) {
  state_->update(labels, predictions, sample_weight);
}
float Metric::result(Origin origin) const { return results(std::span(this, 1), origin).front(); }
void Metric::reset() { state_->reset(); }
const std::string& Metric::name() const { return state_->name(); }
std::vector<AnyVariable> Metric::variables() const { return {state_->sums()}; }

std::vector<float> results(std::span<const Metric> metrics, Origin origin) {
  if (metrics.empty()) return {};
  Strategy& strategy = metrics.front().state_->sums().strategy();
  for (const Metric& each : metrics) {
    if (&each.state_->sums().strategy() != &strategy)
      throw Error(Code::usage,
                  text("results of metrics '", printable(metrics.front().name()), "' and '", printable(each.name()),
                       "' of different strategies"),
                  "make them in one scope");
  }
  const auto sums_of_all = [&](Strategy& all) {
    std::deque<Tensor<double>> parts;
    for (int local = 0; local < all.num_local_replicas(); ++local) {
      std::vector<double> sums;
      for (const Metric& each : metrics) {
        const Tensor<double> mine = each.state_->sums().parts()[static_cast<std::size_t>(local)];
        sums.insert(sums.end(), mine.begin(), mine.end());
      }
      parts.push_back(row(sums));
    }
    return all.num_replicas_in_sync() == 1 ? parts.front() : all.reduce(sum, PerReplica(std::move(parts)), origin);
  };
  ReplicaContext* const replica = replica_context();
  const bool is_replica = replica != nullptr && &replica->strategy() == &strategy;
  const Tensor<double> sums = is_replica ? replica->merge_call(sums_of_all, origin) : sums_of_all(strategy);
  std::vector<float> all;
  for (std::size_t at = 0; const Metric& each : metrics) {
    const std::size_t count = each.state_->sums().shape().count();
    all.push_back(each.state_->result_of(sums.span().subspan(at, count)));
    at += count;
  }
  return all;
}

namespace metrics {
namespace {

// Makes the functions of Precision and Recall: true positives, and what they are divided by.
auto positives(float threshold, bool of_labels) {
  return [=](const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight,
             std::span<double> sums) {
    for_each_decision(labels, predictions, sample_weight, threshold, [&](bool label, bool prediction, double weight) {
      sums[0] += label && prediction ? weight : 0;
      sums[1] += (of_labels ? label : prediction) ? weight : 0;
    });
  };
}

auto values_alone(bool is_mean) {
  return [=](const TapeTensor& values, const TapeTensor& /*none*/, const TapeTensor* sample_weight,
             std::span<double> sums) { add_values(values, sample_weight, is_mean, sums); };
}

}  // namespace

Mean::Mean(std::string name) : Metric(values_alone(true), Form::quotient, std::move(name)) {}
void Mean::update(const TapeTensor& values, const TapeTensor* sample_weight) {
  Metric::update(values, values, sample_weight);
}
Sum::Sum(std::string name) : Metric(values_alone(false), Form::sum, std::move(name)) {}
void Sum::update(const TapeTensor& values, const TapeTensor* sample_weight) {
  Metric::update(values, values, sample_weight);
}

BinaryAccuracy::BinaryAccuracy(const ThresholdOptions& options)
    : Metric(
          [threshold = options.threshold](const TapeTensor& labels, const TapeTensor& predictions) -> TapeTensor {
            check_batch(labels.shape(), predictions.shape());
            const Tensor<float> truth = converted<float>(labels.tensor());
            Tensor<float> all = converted<float>(predictions.tensor());
            for (std::size_t i = 0; i < all.size(); ++i)
              all[i] = truth[i] == (all[i] > threshold ? 1.F : 0.F) ? 1.F : 0.F;
            return all;
          },
          name_or(options.name, "binary_accuracy")) {}
CategoricalAccuracy::CategoricalAccuracy(std::string name)
    : Metric([](const TapeTensor& labels,
                const TapeTensor& predictions) { return equal_classes(best_classes(labels), predictions); },
             std::move(name)) {}
SparseCategoricalAccuracy::SparseCategoricalAccuracy(std::string name)
    : Metric(
          [](const TapeTensor& labels, const TapeTensor& predictions) {
            const Tensor<std::int64_t> all = converted<std::int64_t>(labels.tensor());
            return equal_classes({all.begin(), all.end()}, predictions);
          },
          std::move(name)) {}
Precision::Precision(const ThresholdOptions& options)
    : Metric(positives(options.threshold, false), Form::quotient, name_or(options.name, "precision")) {}
Recall::Recall(const ThresholdOptions& options)
    : Metric(positives(options.threshold, true), Form::quotient, name_or(options.name, "recall")) {}
MeanSquaredError::MeanSquaredError(std::string name) : Metric(mean_squared_error, std::move(name)) {}
BinaryCrossentropy::BinaryCrossentropy(const CrossentropyMetricOptions& options)
    : Metric([how = CrossentropyOptions{options.from_logits, options.label_smoothing}](
                 const TapeTensor& labels,
                 const TapeTensor& predictions) { return binary_crossentropy(labels, predictions, how); },
             name_or(options.name, "binary_crossentropy")) {}
CategoricalCrossentropy::CategoricalCrossentropy(const CrossentropyMetricOptions& options)
    : Metric([how = CrossentropyOptions{options.from_logits, options.label_smoothing}](
                 const TapeTensor& labels,
                 const TapeTensor& predictions) { return categorical_crossentropy(labels, predictions, how); },
             name_or(options.name, "categorical_crossentropy")) {}
SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(const SparseMetricOptions& options)
    : Metric(
          [from_logits = options.from_logits](const TapeTensor& labels, const TapeTensor& predictions) {
            return sparse_categorical_crossentropy(labels, predictions, from_logits);
          },
          name_or(options.name, "sparse_categorical_crossentropy")) {}

}  // namespace metrics

Metric metric_of(std::string_view word, const TensorShape& labels, const TensorShape& predictions) {
  std::string name(word);
  if (word == "accuracy" || word == "acc") {
    const auto last = [](const TensorShape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; };
    if (last(predictions) == 1) return metrics::BinaryAccuracy({.name = std::move(name)});
    if (labels.rank() < predictions.rank() || last(labels) == 1)
      return metrics::SparseCategoricalAccuracy(std::move(name));
    return metrics::CategoricalAccuracy(std::move(name));
  }
  if (word == "binary_accuracy") return metrics::BinaryAccuracy();
  if (word == "categorical_accuracy") return metrics::CategoricalAccuracy();
  if (word == "sparse_categorical_accuracy") return metrics::SparseCategoricalAccuracy();
  if (word == "precision") return metrics::Precision();
  if (word == "recall") return metrics::Recall();
  if (word == "mse" || word == "mean_squared_error") return metrics::MeanSquaredError(std::move(name));
  if (word == "binary_crossentropy") return metrics::BinaryCrossentropy();
  if (word == "categorical_crossentropy") return metrics::CategoricalCrossentropy();
  if (word == "sparse_categorical_crossentropy") return metrics::SparseCategoricalCrossentropy();
  throw Error(Code::usage, text("unknown metric: '", printable(word), '\''),
              "name accuracy, precision, recall, mean_squared_error or another of <lockstep/train.hpp>");
}

}  // namespace lockstep::train
