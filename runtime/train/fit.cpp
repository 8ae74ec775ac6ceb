// SPDX-License-Identifier: Apache-2.0
// Runs the loops of training, of evaluation and of prediction. A loop has four verbs: read the next batch, run a step
// in all replicas, reduce what they have added up, and call the callbacks. It does not know what kind of strategy it
// has.
#include "runtime/train/fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/data/stage.hpp"
#include "runtime/train/batch_shapes.hpp"
#include "runtime/train/callback_list.hpp"
#include "runtime/train/compiled.hpp"
#include "runtime/train/convert.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

constexpr std::int64_t usual_batch = 32;  // is Keras'

// Holds what a replica adds up in one pass over the data, in a cache line of its own.
struct alignas(64) PassSums {
  double loss = 0;  // Is that of all examples.
  double rows = 0;  // Is exact up to 2^53.
};

// Is a replica's part of a batch as tensors.
struct Example {
  TapeTensor features;
  std::optional<TapeTensor> labels;
  std::optional<TapeTensor> weights;
  std::int64_t rows = 0;
};

// Returns the class of each example, from numbers of classes or from one-hot rows.
std::vector<std::int64_t> classes_of(const AnyTensor& labels) {
  const bool is_one_hot = labels.shape().rank() > 1 && labels.shape()[-1] > 1;
  if (is_one_hot) return greatest_of_rows(converted<float>(labels));
  const Tensor<std::int64_t> numbers = converted<std::int64_t>(labels);
  return {numbers.begin(), numbers.end()};
}

// Returns the weights of examples, times those of their classes.
std::optional<TapeTensor> weights_of(const Piece& piece, const std::map<std::int64_t, float>& class_weight) {
  if (class_weight.empty())
    return piece.size() < 3 ? std::nullopt : std::optional<TapeTensor>(converted<float>(piece[2]));
  const std::vector<std::int64_t> classes = classes_of(piece[1]);
  Tensor<float> weights(TensorShape{static_cast<std::int64_t>(classes.size())});
  std::ranges::fill(weights, 1.F);
  if (piece.size() > 2) weights = converted<float>(piece[2].reshaped(weights.shape()));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto at = class_weight.find(classes[i]);
    if (at != class_weight.end()) weights[i] *= at->second;
  }
  return TapeTensor(std::move(weights));
}

}  // namespace

// Is one fit(), evaluate() or predict().
class FitLoop {
 public:
  FitLoop(Model& model, std::string_view call, const std::vector<AnyCallback>& callbacks)
      : model_(model),
        strategy_(model.strategy()),
        scope_(strategy_),
        call_(call),
        compiled_(model.compiled_),
        callbacks_(model, callbacks, text("a callback of ", call, "()")),
        pieces_(static_cast<std::size_t>(strategy_.num_local_replicas())),
        sums_(pieces_.size()) {
    lockstep::detail::require_cross_replica(strategy_, call_);
    say_if_on_gpu();
  }
  ~FitLoop() = default;
  FitLoop(const FitLoop&) = delete;
  FitLoop& operator=(const FitLoop&) = delete;

  History fit(const ModelData& data, const FitOptions& options);
  Logs evaluate(const ModelData& data, const EvaluateOptions& options);
  Tensor<float> predict(const ModelData& data, const PredictOptions& options);

 private:
  struct FitData;
  using Step = void (FitLoop::*)(ReplicaContext& replica);

  // Begin loops over data.
  FitData divide(const ModelData& data, const FitOptions& options);
  std::unique_ptr<PieceSource> divide_whole(const ModelData& data, std::int64_t batch_size,
                                            const std::optional<Tensor<float>>& weights, const InputOptions& input);
  void open(PieceSource& source, std::optional<std::int64_t> steps, std::string_view option);
  std::optional<std::int64_t> steps_known(std::optional<std::int64_t> limit) const;

  // Are the verbs.
  bool next();
  void run(Step step);
  Logs reduce(const std::string& prefix);

  // Run in replicas.
  void train_in(ReplicaContext& replica);
  void test_in(ReplicaContext& replica);
  Example example_of(std::size_t local, const std::map<std::int64_t, float>& class_weight) const;
  TapeTensor losses_of(const Example& example, const TapeTensor& predictions) const;
  std::int64_t global_rows(ReplicaContext& replica, std::int64_t mine) const;
  void update_metrics(ReplicaContext& replica, const Example& example, const TapeTensor& predictions) const;

  std::int64_t train_epoch(PieceSource& source, const FitOptions& options, bool& has_warned);
  bool next_of_epoch(PieceSource& source, std::int64_t done);
  void train_batch(std::int64_t step);
  void let_counts_travel();
  Logs evaluate_pass(PieceSource& source, std::optional<std::int64_t> steps, std::string_view option,
                     const std::string& prefix, Progress* progress);
  void begin_pass();
  void prepare();
  Logs running_loss() const;
  Logs running_logs();
  template <class Options>
  std::shared_ptr<Progress> progress_of(const Options& options) const;
  void say_if_on_gpu() const;

  Model& model_;
  Strategy& strategy_;
  Scope scope_;
  std::string call_;
  std::shared_ptr<Model::Compiled> compiled_;  // Stays if a callback compiles the model anew.
  CallbackList callbacks_;
  std::map<std::int64_t, float> class_weight_;
  std::unique_ptr<PieceReader> reader_;
  std::vector<Piece> pieces_;
  std::vector<PassSums> sums_;
  BatchShapes shapes_;
  std::vector<AnyVariable> trainable_;  // Is empty until a pass has trained on a batch, which may build layers.
  std::shared_ptr<Progress> progress_;
  bool has_read_ = false;       // A batch of the loop over the training data has been trained on.
  bool needs_metrics_ = false;  // The replicas make the metrics in this step.
};

struct FitLoop::FitData {
  std::unique_ptr<PieceSource> training;
  std::unique_ptr<PieceSource> validation;
};

// ---- Data ----

namespace {

Piece with_weights(const ModelData& data, const std::optional<Tensor<float>>& weights) {
  Piece arrays = data.arrays();
  if (!weights) return arrays;
  if (arrays.size() != 2)
    throw Error(Code::usage, text("sample_weight was given with ", arrays.size(), " arrays"),
                "give it with features and labels that have no weights of their own");
  // An AnyTensor can be written; this one is only read.
  arrays.push_back(AnyTensor::view_of(const_cast<Tensor<float>&>(*weights)));
  return arrays;
}

// Returns the rows of all tensors, one behind the other.
Tensor<float> joined(const std::vector<Tensor<float>>& parts) {
  std::int64_t rows = 0;
  for (const Tensor<float>& each : parts) {
    if (each.shape().with(0, 0) != parts.front().shape().with(0, 0))
      throw Error(Code::usage,
                  text("predict() of batches with results of the shapes ", parts.front().shape().to_string(), " and ",
                       each.shape().to_string()),
                  "pad all batches to one length, or predict one batch at a time");
    rows += each.shape()[0];
  }
  Tensor<float> whole(parts.front().shape().with(0, rows));
  auto to = whole.begin();
  for (const Tensor<float>& each : parts) to = std::copy(each.begin(), each.end(), to);
  return whole;
}

void refuse_below(std::int64_t least, std::optional<std::int64_t> given, std::string_view option) {
  if (given && *given < least)
    throw Error(Code::usage, text('`', option, "` is ", *given), text("give a number from ", least, " on"));
}

void refuse_for_dataset(bool is_given, std::string_view option, std::string_view remedy) {
  if (is_given) throw Error(Code::usage, text("`", option, "` is not supported when a data set is the input"), remedy);
}

}  // namespace

std::unique_ptr<PieceSource> FitLoop::divide_whole(const ModelData& data, std::int64_t batch_size,
                                                   const std::optional<Tensor<float>>& weights,
                                                   const InputOptions& input) {
  if (!data.is_arrays()) {
    refuse_for_dataset(weights.has_value(), "sample_weight",
                       "let the data set's elements be (features, labels, weights)");
    return data.divide(strategy_, input);
  }
  const Piece arrays = with_weights(data, weights);
  return divide_arrays(strategy_, arrays, {.end_row = rows_of_arrays(arrays), .batch_size = batch_size}, input);
}

FitLoop::FitData FitLoop::divide(const ModelData& data, const FitOptions& options) {
  FitData divided;
  const std::int64_t batch_size = options.batch_size.value_or(usual_batch);
  const std::int64_t validation_batch = options.validation_batch_size.value_or(batch_size);
  if (!data.is_arrays()) {
    refuse_for_dataset(options.validation_split > 0, "validation_split", "give a data set as validation_data");
    refuse_for_dataset(options.batch_size.has_value(), "batch_size", "call batch() of the data set");
    divided.training = divide_whole(data, batch_size, options.sample_weight, options.input);
  } else {
    const Piece arrays = with_weights(data, options.sample_weight);
    const std::int64_t rows = rows_of_arrays(arrays);
    const double split = options.validation_data ? 0 : options.validation_split;
    const auto first_of_validation = static_cast<std::int64_t>(std::floor(static_cast<double>(rows) * (1 - split)));
    if (split != 0 && (first_of_validation <= 0 || first_of_validation >= rows))
      throw Error(
          Code::usage,
          text("Training data contains ", rows, " samples, which is not sufficient to split it into a validation ",
               "and training set as specified by `validation_split=", split, '`'),
          "provide more data, or a different value for `validation_split`");
    divided.training = divide_arrays(strategy_, arrays,
                                     {.end_row = first_of_validation,
                                      .batch_size = batch_size,
                                      .is_shuffled = options.shuffle,
                                      .seed = options.seed},
                                     options.input);
    if (first_of_validation < rows)
      divided.validation = divide_arrays(
          strategy_, arrays, {.first_row = first_of_validation, .end_row = rows, .batch_size = validation_batch},
          options.input);
  }
  if (options.validation_data)
    divided.validation = divide_whole(*options.validation_data, validation_batch, std::nullopt, options.input);
  return divided;
}

void FitLoop::open(PieceSource& source, std::optional<std::int64_t> steps, std::string_view option) {
  reader_.reset();  // It ends before another loop of its channel begins.
  reader_ = source.open();
  if (steps || reader_->steps() != data::infinite) return;
  throw Error(Code::usage, text(call_, "() of an infinitely repeating dataset without `", option, '`'),
              text("When passing an infinitely repeating dataset, please specify a `", option,
                   "` value, or take() a part of the data"));
}

std::optional<std::int64_t> FitLoop::steps_known(std::optional<std::int64_t> limit) const {
  if (limit) return limit;
  return reader_->steps() >= 0 ? std::optional(reader_->steps()) : std::nullopt;
}

// ---- The verbs ----

bool FitLoop::next() { return reader_->next(pieces_); }

void FitLoop::run(Step step) {
  if (pieces_.front().size() < 2)
    throw Error(Code::usage, text("the data of ", call_, "() have no labels"), "give (features, labels)");
  prepare();
  needs_metrics_ = compiled_->metrics.size() < compiled_->choices.size();
  strategy_.run([this, step](ReplicaContext& replica) { (this->*step)(replica); });
}

// Builds the model by the first batch, for all replicas at once.
void FitLoop::prepare() {
  if (!shapes_.are_known()) shapes_.learn(strategy_, pieces_);
  Layer& network = model_.network();
  if (!network.is_built() && shapes_.are_known()) network.build(shapes_.features().without(0));
}

Logs FitLoop::reduce(const std::string& prefix) {
  std::deque<Tensor<double>> mine;
  for (const PassSums& each : sums_)
    mine.emplace_back(TensorShape{2}, std::initializer_list<double>{each.loss, each.rows});
  const Tensor<double> all = strategy_.reduce(sum, PerReplica(std::move(mine)));
  if (all[1] == 0)
    throw Error(Code::usage, text("the data of ", call_, "() have no examples"), "give data of at least one batch");
  Logs logs{{prefix + "loss", all[0] / all[1]}};
  compiled_->add_results(logs, prefix);
  return logs;
}

void FitLoop::begin_pass() {
  std::ranges::fill(sums_, PassSums{});
  trainable_.clear();  // A callback may have frozen a layer.
  compiled_->reset_metrics();
}

Logs FitLoop::running_loss() const {
  PassSums all;
  for (const PassSums& each : sums_) {
    all.loss += each.loss;
    all.rows += each.rows;
  }
  return {{"loss", all.loss / std::max(1.0, all.rows)}};
}

// Returns numbers for a display without a message between processes.
Logs FitLoop::running_logs() { return is_in_one_process(strategy_) ? reduce({}) : running_loss(); }

// ---- In a replica ----

Example FitLoop::example_of(std::size_t local, const std::map<std::int64_t, float>& class_weight) const {
  const Piece& piece = pieces_[local];
  Example example{.features = piece.front(), .rows = piece.front().shape()[0]};
  if (piece.size() > 1) example.labels = piece[1];
  if (example.rows == 0) {
    example.features = shapes_.no_examples(piece.front(), 0);
    if (piece.size() > 1) example.labels = shapes_.no_examples(piece[1], 1);
  }
  example.weights = weights_of(piece, class_weight);
  return example;
}

TapeTensor FitLoop::losses_of(const Example& example, const TapeTensor& predictions) const {
  TapeTensor losses =
      compiled_->loss.per_example(*example.labels, predictions, example.weights ? &*example.weights : nullptr);
  const std::vector<std::int64_t>& lengths = losses.shape().lengths();
  const std::vector<std::int64_t>& all = predictions.shape().lengths();
  const bool fits = lengths.size() <= all.size() && std::equal(lengths.begin(), lengths.end(), all.begin());
  if (lengths.empty() || lengths.front() != example.rows || !fits)  // Labels (n) beside (n, 1) would make (n, n).
    throw Error(Code::usage,
                text("a loss of shape ", losses.shape().to_string(), " for ", example.rows,
                     " examples, whose predictions have the shape ", predictions.shape().to_string()),
                "let the loss return a number for each example; Dense(1) predicts (n, 1), so reshape labels to that");
  return losses;
}

std::int64_t FitLoop::global_rows(ReplicaContext& replica, std::int64_t mine) const {
  if (const std::optional<std::int64_t> known = reader_->global_rows()) return *known;
  return replica.all_reduce(mine, sum);
}

void FitLoop::train_in(ReplicaContext& replica) {
  const auto local = static_cast<std::size_t>(replica.local_id());
  const Example example = example_of(local, class_weight_);
  const std::int64_t rows = std::max<std::int64_t>(1, global_rows(replica, example.rows));
  TapeTensor predictions;
  {
    Tape tape;
    predictions = model_.network()(example.features, true);
    const std::vector<AnyVariable> variables = trainable_.empty() ? model_.network().trainable_variables() : trainable_;
    const TapeTensor losses = losses_of(example, predictions);
    const auto per_row =
        static_cast<double>(losses.size()) / static_cast<double>(std::max<std::int64_t>(1, example.rows));
    const bool is_sum = compiled_->loss.reduction() == Reduction::sum;
    const TapeTensor total = reduce_sum(losses);
    const double divisor = is_sum ? 1 : std::max(1.0, per_row) * static_cast<double>(rows);
    compiled_->optimizer.minimize(tape, total / TapeTensor(static_cast<float>(divisor)), variables);
    // An epoch's loss is the mean of the batches' losses, each weighted by its examples.
    sums_[local].loss += static_cast<double>(total.item()) / divisor * static_cast<double>(rows);
    sums_[local].rows += static_cast<double>(example.rows);
  }
  update_metrics(replica, example, predictions);
}

void FitLoop::test_in(ReplicaContext& replica) {
  const auto local = static_cast<std::size_t>(replica.local_id());
  const Example example = example_of(local, {});  // Class weights are of the training alone.
  const TapeTensor predictions = model_.network()(example.features, false);
  const TapeTensor losses = losses_of(example, predictions);
  const bool is_sum = compiled_->loss.reduction() == Reduction::sum;
  const double scale = is_sum ? static_cast<double>(global_rows(replica, example.rows)) : 1;
  const auto per_row =
      static_cast<double>(losses.size()) / static_cast<double>(std::max<std::int64_t>(1, example.rows));
  sums_[local].loss += static_cast<double>(reduce_sum(losses).item()) * scale / (is_sum ? 1 : std::max(1.0, per_row));
  sums_[local].rows += static_cast<double>(example.rows);
  update_metrics(replica, example, predictions);
}

void FitLoop::update_metrics(ReplicaContext& replica, const Example& example, const TapeTensor& predictions) const {
  if (needs_metrics_) {
    const auto make = [&] { compiled_->make_metrics(example.labels->shape(), predictions.shape()); };
    if (has_strategy())
      replica.merge_call([&](Strategy& /*strategy*/) { make(); });
    else
      make();
  }
  compiled_->update_metrics(*example.labels, predictions, example.weights ? &*example.weights : nullptr);
}

// ---- The loops ----

template <class Options>
std::shared_ptr<Progress> FitLoop::progress_of(const Options& options) const {
  if (!model_.is_chief()) return nullptr;
  return options.progress ? options.progress
                          : std::shared_ptr<Progress>(make_progress(options.verbose, *options.output));
}

History FitLoop::fit(const ModelData& data, const FitOptions& options) {
  refuse_below(0, options.epochs, "epochs");
  refuse_below(0, options.initial_epoch, "initial_epoch");
  refuse_below(1, options.steps_per_epoch, "steps_per_epoch");
  refuse_below(1, options.validation_steps, "validation_steps");
  refuse_below(1, options.validation_freq, "validation_freq");
  class_weight_ = options.class_weight;
  FitData divided = divide(data, options);
  progress_ = progress_of(options);
  model_.stops_->store(false);
  callbacks_.begin_votes(*model_.stops_);
  History history;
  Logs logs;
  bool has_warned = false;
  callbacks_.call(&Callback::on_train_begin, logs);
  for (std::int64_t epoch = options.initial_epoch; epoch < options.epochs; ++epoch) {
    if (!reader_ || !options.steps_per_epoch) {
      open(*divided.training, options.steps_per_epoch, "steps_per_epoch");
      has_read_ = false;
    }
    const std::optional<std::int64_t> steps = steps_known(options.steps_per_epoch);
    if (progress_) progress_->begin(epoch, options.epochs, steps);
    begin_pass();
    Logs nothing;
    callbacks_.call(&Callback::on_epoch_begin, epoch, nothing);
    const std::int64_t done = train_epoch(*divided.training, options, has_warned);
    logs = reduce({});
    if (divided.validation && (epoch + 1) % options.validation_freq == 0) {
      // The next epoch goes on in its loop, if it does not begin anew.
      std::unique_ptr<PieceReader> training = std::move(reader_);
      if (!options.steps_per_epoch) training.reset();
      const Logs validation =
          evaluate_pass(*divided.validation, options.validation_steps, "validation_steps", "val_", nullptr);
      for (const auto& [name, value] : validation) logs.set(name, value);
      reader_ = std::move(training);
    }
    callbacks_.call(&Callback::on_epoch_end, epoch, logs);
    history.add(epoch, logs);
    if (progress_) progress_->end(done, logs);
    if (callbacks_.ends_behind_epoch()) break;
  }
  callbacks_.call(&Callback::on_train_end, logs);
  callbacks_.ends_behind_epoch();
  return history;
}

std::int64_t FitLoop::train_epoch(PieceSource& source, const FitOptions& options, bool& has_warned) {
  std::int64_t done = 0;
  while ((!options.steps_per_epoch || done < *options.steps_per_epoch) && next_of_epoch(source, done)) {
    if (callbacks_.ends_behind_batch()) return done;
    train_batch(done++);
    callbacks_.begin_vote();
  }
  if (options.steps_per_epoch && done < *options.steps_per_epoch) {
    if (model_.is_chief() && !std::exchange(has_warned, true))
      strategy_.log().warn(text("the data ran out behind ", done, " of ", *options.steps_per_epoch,
                                " steps of an epoch; ", "for longer epochs call repeat() of the data set"));
    reader_.reset();
  }
  callbacks_.ends_behind_batch();  // Whether to stop is asked behind the epoch.
  return done;
}

// Reads a batch. A loop that has ended with the epoch before begins anew.
bool FitLoop::next_of_epoch(PieceSource& source, std::int64_t done) {
  if (next()) return true;
  if (done > 0 || !has_read_) return false;
  reader_ = source.open();
  has_read_ = false;
  return next();
}

// Lets the counts of the data travel with the gradients, if the processes must ask each other for them.
void FitLoop::let_counts_travel() {
  if (reader_->steps() != data::unknown_length || is_in_one_process(strategy_)) return;
  try {
    reader_->travel_with(compiled_->optimizer.reducer());
  } catch (const Error& error) {
    if (error.code() != Code::usage) throw;  // All gradients are rows, with which nothing travels.
  }
}

void FitLoop::train_batch(std::int64_t step) {
  Logs logs;
  callbacks_.call(&Callback::on_train_batch_begin, step, logs);
  run(&FitLoop::train_in);
  if (trainable_.empty()) trainable_ = model_.network().trainable_variables();
  if (!std::exchange(has_read_, true)) let_counts_travel();
  if (!callbacks_.empty()) {
    logs = running_loss();
    callbacks_.call(&Callback::on_train_batch_end, step, logs);
  }
  if (progress_ && progress_->wants_step(step + 1)) progress_->step(step + 1, running_logs());
}

Logs FitLoop::evaluate_pass(PieceSource& source, std::optional<std::int64_t> steps, std::string_view option,
                            const std::string& prefix, Progress* progress) {
  open(source, steps, option);
  if (progress != nullptr) progress->begin(0, 0, steps_known(steps));
  begin_pass();
  Logs logs;
  callbacks_.call(&Callback::on_test_begin, logs);
  std::int64_t done = 0;
  for (; (!steps || done < *steps) && next(); ++done) {
    callbacks_.call(&Callback::on_test_batch_begin, done, logs);
    run(&FitLoop::test_in);
    if (!callbacks_.empty()) {
      logs = running_loss();
      callbacks_.call(&Callback::on_test_batch_end, done, logs);
    }
    if (progress != nullptr && progress->wants_step(done + 1)) progress->step(done + 1, running_logs());
  }
  reader_.reset();
  logs = reduce(prefix);
  callbacks_.call(&Callback::on_test_end, logs);
  if (progress != nullptr) progress->end(done, logs);
  return logs;
}

Logs FitLoop::evaluate(const ModelData& data, const EvaluateOptions& options) {
  refuse_below(1, options.steps, "steps");
  if (!data.is_arrays())
    refuse_for_dataset(options.batch_size.has_value(), "batch_size", "call batch() of the data set");
  const std::unique_ptr<PieceSource> source =
      divide_whole(data, options.batch_size.value_or(usual_batch), options.sample_weight, options.input);
  const std::shared_ptr<Progress> progress = progress_of(options);
  return evaluate_pass(*source, options.steps, "steps", {}, progress.get());
}

Tensor<float> FitLoop::predict(const ModelData& data, const PredictOptions& options) {
  refuse_below(1, options.steps, "steps");
  if (!data.is_arrays())
    refuse_for_dataset(options.batch_size.has_value(), "batch_size", "call batch() of the data set");
  const std::unique_ptr<PieceSource> source =
      divide_whole(data, options.batch_size.value_or(usual_batch), std::nullopt, options.input);
  const std::shared_ptr<Progress> progress = progress_of(options);
  open(*source, options.steps, "steps");
  if (progress) progress->begin(0, 0, steps_known(options.steps));
  Logs nothing;
  callbacks_.call(&Callback::on_predict_begin, nothing);
  std::vector<Tensor<float>> batches;
  std::int64_t done = 0;
  for (; (!options.steps || done < *options.steps) && next(); ++done) {
    callbacks_.call(&Callback::on_predict_batch_begin, done, nothing);
    prepare();
    const auto results = strategy_.run([&](ReplicaContext& replica) {
      const Example example = example_of(static_cast<std::size_t>(replica.local_id()), {});
      return model_.network()(example.features, false).to<float>();
    });
    batches.push_back(strategy_.gather(results, 0));
    callbacks_.call(&Callback::on_predict_batch_end, done, nothing);
    if (progress && progress->wants_step(done + 1)) progress->step(done + 1, {});
  }
  callbacks_.call(&Callback::on_predict_end, nothing);
  if (progress) progress->end(done, {});
  if (batches.empty()) throw Error(Code::usage, "the data of predict() have no examples", "give at least one batch");
  return joined(batches);
}

void FitLoop::say_if_on_gpu() const {
  const std::vector<std::string> devices = strategy_.devices();
  const auto gpus =
      std::ranges::count_if(devices, [](const std::string& each) { return each.find("GPU") != each.npos; });
  if (gpus > 0 && !std::exchange(model_.has_told_, true))
    strategy_.log().notice(
        text("the model computes on the host's copy of its variables, because the trainer has no kernels ",
             "for GPUs yet; this process has ", gpus, " GPUs"));
}

// ---- The functions of a model ----

History Model::fit(const ModelData& data, const FitOptions& options) {
  compiled();  // Refuses a model without loss before anything begins.
  return FitLoop(*this, "fit", options.callbacks).fit(data, options);
}
Logs Model::evaluate(const ModelData& data, const EvaluateOptions& options) {
  compiled();
  return FitLoop(*this, "evaluate", options.callbacks).evaluate(data, options);
}
Tensor<float> Model::predict(const ModelData& data, const PredictOptions& options) {
  return FitLoop(*this, "predict", options.callbacks).predict(data, options);
}

}  // namespace lockstep::train
