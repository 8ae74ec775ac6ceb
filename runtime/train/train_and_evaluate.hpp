// SPDX-License-Identifier: Apache-2.0
// Runs one program in all roles of a cluster, as Estimators did: workers train, and the evaluator evaluates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/any_strategy.hpp"
#include "runtime/cluster/resolver.hpp"
#include "runtime/train/model.hpp"

namespace lockstep::train {

// Tells an input function the use of its data.
enum class InputMode : std::uint8_t { train, evaluate };

struct RunConfig {
  // Makes the strategy of the training; the default strategy without it. It is not called in the evaluator, which takes
  // no part in the training.
  std::function<AnyStrategy()> train_distribute = {};
  // Names the role of this process. By default TF_CONFIG does, and a process without it trains and then evaluates.
  std::shared_ptr<const Resolver> resolver = nullptr;
  std::int64_t epochs = 1;
  // Ends the training behind so many steps, in one epoch; for endless data.
  std::optional<std::int64_t> max_steps = {};
  std::optional<std::int64_t> evaluation_steps = {};  // Is the number of batches of an evaluation; all by default.
  Verbose verbose = Verbose::automatic;
  std::ostream* output = &std::cout;
  std::vector<AnyCallback> callbacks = {};
};

// Is the result of a process.
struct RunResult {
  std::string role;  // Is "worker", "chief", or "local" without a cluster.
  History history;
  std::optional<Logs> evaluation = {};  // Is set without a cluster, where no evaluator runs beside the training.
};

// Makes a compiled model in the strategy's scope, and trains it. Throws Error usage in the evaluator, which reads
// checkpoints, because the trainer writes none yet; and in a parameter server.
RunResult train_and_evaluate(const std::function<std::unique_ptr<Model>()>& model_fn,
                             const std::function<ModelData(InputMode mode)>& input_fn, const RunConfig& config = {});

}  // namespace lockstep::train
