// SPDX-License-Identifier: Apache-2.0
// Decides as Keras' callbacks do.
#include "runtime/train/callbacks.hpp"

#include <cmath>
#include <limits>

#include "runtime/train/event_file.hpp"
#include "runtime/train/model.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {

Model& Callback::model() const {
  if (model_ == nullptr)
    throw Error(Code::usage, "a callback asks for its model outside of a training", "call it in its on_... functions");
  return *model_;
}
void Callback::stop_training() const { model().stop_training(); }

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {
  if (options_.mode != MonitorMode::automatic) return;
  const std::string& name = options_.monitor;
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const bool is_higher_better = contains("acc") || contains("precision") || contains("recall") || contains("auc");
  options_.mode = is_higher_better ? MonitorMode::max : MonitorMode::min;
}

void EarlyStopping::on_train_begin(Logs& /*logs*/) {
  const double infinity = std::numeric_limits<double>::infinity();
  best_ = options_.mode == MonitorMode::max ? -infinity : infinity;
  best_epoch_ = 0;
  wait_ = 0;
  stopped_epoch_.reset();
  best_weights_.clear();
}

bool EarlyStopping::is_better(double value, double than) const {
  return options_.mode == MonitorMode::max ? value - options_.min_delta > than : value + options_.min_delta < than;
}

void EarlyStopping::keep_weights() {
  best_weights_.clear();
  for (const AnyVariable& each : model().network().variables()) best_weights_.push_back(each.saved());
}

void EarlyStopping::on_epoch_end(std::int64_t epoch, Logs& logs) {
  const std::optional<double> value = logs.find(options_.monitor);
  if (!value) {
    model().strategy().log().warn(
        text("EarlyStopping monitors ", options_.monitor, ", which is not available. Available are:", to_string(logs)));
    return;
  }
  if (epoch < options_.start_from_epoch) return;
  const bool keeps = options_.restore_best_weights;
  if (keeps && best_weights_.empty()) {  // Weights are restored even if no epoch becomes better.
    keep_weights();
    best_epoch_ = epoch;
  }
  ++wait_;
  if (is_better(*value, best_)) {
    best_ = *value;
    best_epoch_ = epoch;
    if (keeps) keep_weights();
    if (!options_.baseline || is_better(*value, *options_.baseline)) wait_ = 0;
    return;
  }
  if (wait_ < options_.patience || epoch == 0) return;
  stopped_epoch_ = epoch;
  stop_training();
}

void EarlyStopping::on_train_end(Logs& /*logs*/) {
  if (best_weights_.empty()) return;
  const std::vector<AnyVariable> variables = model().network().variables();
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].restore(best_weights_[i]);
}

void LearningRateScheduler::on_epoch_begin(std::int64_t epoch, Logs& /*logs*/) {
  Optimizer& optimizer = model().optimizer();
  optimizer.set_learning_rate(schedule_(epoch, optimizer.learning_rate()));
}
void LearningRateScheduler::on_epoch_end(std::int64_t /*epoch*/, Logs& logs) {
  logs.set("learning_rate", static_cast<double>(model().optimizer().learning_rate()));
}

void TerminateOnNaN::on_train_batch_end(std::int64_t step, Logs& logs) {
  const std::optional<double> loss = logs.find("loss");
  if (!loss || std::isfinite(*loss)) return;
  model().strategy().log().warn(text("batch ", step, ": invalid loss, so the training ends"));
  stop_training();
}

EventFile& TensorBoard::file(const std::string& folder, std::shared_ptr<EventFile>& file) const {
  if (!file) file = std::make_shared<EventFile>(text(options_.log_dir, '/', folder));
  return *file;
}

void TensorBoard::on_epoch_end(std::int64_t epoch, Logs& logs) {
  if (!model().is_chief()) return;
  constexpr std::string_view prefix = "val_";
  for (const auto& [name, value] : logs) {
    const bool is_validation = name.starts_with(prefix);
    EventFile& to = is_validation ? file("validation", validation_) : file("train", train_);
    to.scalar(text("epoch_", is_validation ? std::string_view(name).substr(prefix.size()) : name),
              static_cast<float>(value), epoch);
  }
}

void TensorBoard::on_train_batch_end(std::int64_t /*step*/, Logs& logs) {
  ++steps_;
  if (options_.update_freq < 1 || (steps_ - 1) % options_.update_freq != 0 || !model().is_chief()) return;
  for (const auto& [name, value] : logs)
    file("train", train_).scalar(text("batch_", name), static_cast<float>(value), steps_ - 1);
}

void TensorBoard::on_train_end(Logs& /*logs*/) {
  train_.reset();
  validation_.reset();
}

}  // namespace lockstep::train
