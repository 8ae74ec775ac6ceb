// SPDX-License-Identifier: Apache-2.0
// Holds the options of fit(), evaluate() and predict(). The names are Keras'.
#pragma once

#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/input_options.hpp"
#include "runtime/train/callbacks.hpp"
#include "runtime/train/model_data.hpp"
#include "runtime/train/progress.hpp"

namespace lockstep::train {

struct FitOptions {
  std::int64_t epochs = 1;
  // Is the batch size of all replicas together, for arrays; 32 by default. A data set has batches already.
  std::optional<std::int64_t> batch_size = {};
  // Ends an epoch. By default it ends with the data. The next epoch goes on where this one has ended.
  std::optional<std::int64_t> steps_per_epoch = {};
  std::int64_t initial_epoch = 0;  // Is the number of the first epoch; `epochs` is the number behind the last.
  std::vector<AnyCallback> callbacks = {};
  // Is evaluated behind each `validation_freq`-th epoch, from its beginning, in whole or for some steps.
  std::optional<ModelData> validation_data = {};
  std::optional<std::int64_t> validation_steps = {};
  std::optional<std::int64_t> validation_batch_size = {};  // Is that of all replicas; `batch_size` by default.
  std::int64_t validation_freq = 1;
  double validation_split = 0;  // Takes this share of the arrays' last rows for validation, before any shuffle.
  // Draws another order of the arrays' rows for each epoch. Without a seed each run draws another one.
  bool shuffle = true;
  std::optional<std::uint64_t> seed = {};
  std::optional<Tensor<float>> sample_weight = {};  // Holds a weight for each row of the arrays.
  std::map<std::int64_t, float> class_weight = {};  // Multiplies the weights of the examples of a class.
  InputOptions input = {};
  Verbose verbose = Verbose::automatic;
  std::ostream* output = &std::cout;             // Gets what the chief shows.
  std::shared_ptr<Progress> progress = nullptr;  // Is the program's own display, instead of the usual one.
};

struct EvaluateOptions {
  std::optional<std::int64_t> batch_size = {};
  std::optional<std::int64_t> steps = {};
  std::optional<Tensor<float>> sample_weight = {};
  std::vector<AnyCallback> callbacks = {};
  InputOptions input = {};
  Verbose verbose = Verbose::automatic;
  std::ostream* output = &std::cout;             // Gets what the chief shows.
  std::shared_ptr<Progress> progress = nullptr;  // Is the program's own display, instead of the usual one.
};

struct PredictOptions {
  std::optional<std::int64_t> batch_size = {};
  std::optional<std::int64_t> steps = {};
  std::vector<AnyCallback> callbacks = {};
  InputOptions input = {};
  Verbose verbose = Verbose::silent;
  std::ostream* output = &std::cout;             // Gets what the chief shows.
  std::shared_ptr<Progress> progress = nullptr;  // Is the program's own display, instead of the usual one.
};

}  // namespace lockstep::train
