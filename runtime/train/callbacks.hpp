// SPDX-License-Identifier: Apache-2.0
// Holds functions of the program that training calls at its events, and the usual ones of Keras. All processes call
// them alike; only the chief writes files.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/logs.hpp"

namespace lockstep::train {

class EventFile;
class Model;

// Does nothing at each event. Numbers of epochs and steps count from 0. The numbers of an epoch are those of all
// replicas; the loss of a batch is the mean over this process's examples of the epoch so far, because another mean
// would take a message in each step.
class Callback {
 public:
  Callback() = default;
  virtual ~Callback() = default;

  virtual void on_train_begin(Logs& /*logs*/) {}
  virtual void on_train_end(Logs& /*logs*/) {}
  virtual void on_epoch_begin(std::int64_t /*epoch*/, Logs& /*logs*/) {}
  // May add numbers, which later callbacks, the display and the history get.
  virtual void on_epoch_end(std::int64_t /*epoch*/, Logs& /*logs*/) {}
  virtual void on_train_batch_begin(std::int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_train_batch_end(std::int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_test_begin(Logs& /*logs*/) {}
  virtual void on_test_end(Logs& /*logs*/) {}
  virtual void on_test_batch_begin(std::int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_test_batch_end(std::int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_predict_begin(Logs& /*logs*/) {}
  virtual void on_predict_end(Logs& /*logs*/) {}
  virtual void on_predict_batch_begin(std::int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_predict_batch_end(std::int64_t /*step*/, Logs& /*logs*/) {}

  // Returns the model that is being trained. Throws Error usage outside of its calls.
  Model& model() const;
  // Ends the training behind this event, in all processes, if one of them asks for it.
  void stop_training() const;
  // Is for the loop. Returns the former model, of which a loop outside of this one may be about to tell more.
  Model* set_model(Model* model) { return std::exchange(model_, model); }

 protected:
  Callback(const Callback&) = default;
  Callback(Callback&&) = default;
  Callback& operator=(const Callback&) = default;
  Callback& operator=(Callback&&) = default;

 private:
  Model* model_ = nullptr;
};

// Owns a callback, or refers to one: {EarlyStopping({.patience = 2}), &own}.
class AnyCallback {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a callback is one
  template <class C>
  requires std::derived_from<C, Callback> AnyCallback(C callback)
      : callback_(std::make_shared<C>(std::move(callback))) {}
  template <class C>
  requires std::derived_from<C, Callback> AnyCallback(std::shared_ptr<C> callback) : callback_(std::move(callback)) {}
  // Refers to a callback, which must outlive the training.
  AnyCallback(Callback* callback) : callback_(std::shared_ptr<void>(), callback) {}
  // NOLINTEND(google-explicit-constructor)
  Callback* operator->() const { return callback_.get(); }

 private:
  std::shared_ptr<Callback> callback_;
};

// Calls functions, those that are set.
struct LambdaFunctions {
  std::function<void(Logs& logs)> on_train_begin = {};
  std::function<void(Logs& logs)> on_train_end = {};
  std::function<void(std::int64_t epoch, Logs& logs)> on_epoch_begin = {};
  std::function<void(std::int64_t epoch, Logs& logs)> on_epoch_end = {};
  std::function<void(std::int64_t step, Logs& logs)> on_train_batch_begin = {};
  std::function<void(std::int64_t step, Logs& logs)> on_train_batch_end = {};
};
class LambdaCallback final : public Callback {
 public:
  explicit LambdaCallback(LambdaFunctions functions) : functions_(std::move(functions)) {}
  void on_train_begin(Logs& logs) override { call(functions_.on_train_begin, logs); }
  void on_train_end(Logs& logs) override { call(functions_.on_train_end, logs); }
  void on_epoch_begin(std::int64_t epoch, Logs& logs) override { call(functions_.on_epoch_begin, epoch, logs); }
  void on_epoch_end(std::int64_t epoch, Logs& logs) override { call(functions_.on_epoch_end, epoch, logs); }
  void on_train_batch_begin(std::int64_t step, Logs& logs) override {
    call(functions_.on_train_batch_begin, step, logs);
  }
  void on_train_batch_end(std::int64_t step, Logs& logs) override { call(functions_.on_train_batch_end, step, logs); }

 private:
  template <class F, class... A>
  static void call(const F& function, A&... arguments) {
    if (function) function(arguments...);
  }
  LambdaFunctions functions_;
};

// Tells which numbers are better: lower ones, higher ones, or what the name suggests ("accuracy" is better higher).
enum class MonitorMode : std::uint8_t { automatic, min, max };
struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  std::int64_t patience = 0;
  MonitorMode mode = MonitorMode::automatic;
  std::optional<double> baseline = {};
  bool restore_best_weights = false;
  std::int64_t start_from_epoch = 0;
};
// Stops the training when a number has not become better for `patience` epochs.
class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  void on_train_begin(Logs& logs) override;
  void on_epoch_end(std::int64_t epoch, Logs& logs) override;
  void on_train_end(Logs& logs) override;
  // Returns the epoch behind which the training stopped; nothing if it did not.
  std::optional<std::int64_t> stopped_epoch() const { return stopped_epoch_; }
  std::int64_t best_epoch() const { return best_epoch_; }

 private:
  bool is_better(double value, double than) const;
  void keep_weights();

  EarlyStoppingOptions options_;
  double best_ = 0;
  std::int64_t best_epoch_ = 0;
  std::int64_t wait_ = 0;
  std::optional<std::int64_t> stopped_epoch_;
  std::vector<std::vector<std::byte>> best_weights_;
};

// Sets the learning rate at the beginning of each epoch: schedule(epoch, the rate so far). The rate is in the logs as
// "learning_rate".
class LearningRateScheduler final : public Callback {
 public:
  explicit LearningRateScheduler(std::function<float(std::int64_t epoch, float rate)> schedule)
      : schedule_(std::move(schedule)) {}
  void on_epoch_begin(std::int64_t epoch, Logs& logs) override;
  void on_epoch_end(std::int64_t epoch, Logs& logs) override;

 private:
  std::function<float(std::int64_t, float)> schedule_;
};

// Stops the training when the loss of a batch is not a finite number.
class TerminateOnNaN final : public Callback {
 public:
  void on_train_batch_end(std::int64_t step, Logs& logs) override;
};

struct TensorBoardOptions {
  std::string log_dir = "logs";
  // Writes the loss each so many steps as well, as "batch_loss"; 0 writes epochs only.
  std::int64_t update_freq = 0;
};
// Writes event files for TensorBoard, in the folders "train" and "validation": "epoch_loss", "epoch_accuracy", ...
class TensorBoard final : public Callback {
 public:
  explicit TensorBoard(TensorBoardOptions options = {}) : options_(std::move(options)) {}
  void on_epoch_end(std::int64_t epoch, Logs& logs) override;
  void on_train_batch_end(std::int64_t step, Logs& logs) override;
  void on_train_end(Logs& logs) override;

 private:
  EventFile& file(const std::string& folder, std::shared_ptr<EventFile>& file) const;

  TensorBoardOptions options_;
  std::shared_ptr<EventFile> train_;
  std::shared_ptr<EventFile> validation_;
  std::int64_t steps_ = 0;  // Counts the steps of all epochs.
};

}  // namespace lockstep::train
