// SPDX-License-Identifier: Apache-2.0
// Chooses by the process's role what to call.
#include "runtime/train/train_and_evaluate.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

std::string role_of(const RunConfig& config) {
  const std::optional<Task> task = config.resolver ? config.resolver->task() : TfConfigResolver().task();
  return task ? task->type : std::string("local");
}

void refuse_role(const std::string& role) {
  if (role == "evaluator")
    throw Error(Code::usage, "the evaluator reads checkpoints of the training, and the trainer writes none yet",
                "evaluate in the training: give fit() validation_data; or start no evaluator");
  if (role == "ps")
    throw Error(Code::usage, "a parameter server takes no part in train_and_evaluate() yet",
                "start workers only, with a MultiWorkerMirroredStrategy");
}

}  // namespace

RunResult train_and_evaluate(const std::function<std::unique_ptr<Model>()>& model_fn,
                             const std::function<ModelData(InputMode mode)>& input_fn, const RunConfig& config) {
  RunResult result{.role = role_of(config), .history = {}};
  refuse_role(result.role);
  const AnyStrategy strategy = config.train_distribute ? config.train_distribute() : AnyStrategy();
  const Scope scope = strategy->scope();
  const std::unique_ptr<Model> model = model_fn();
  FitOptions fit{.epochs = config.epochs,
                 .steps_per_epoch = config.max_steps,
                 .callbacks = config.callbacks,
                 .verbose = config.verbose,
                 .output = config.output};
  if (config.max_steps) fit.epochs = 1;
  result.history = model->fit(input_fn(InputMode::train), fit);
  if (result.role == "local")
    result.evaluation =
        model->evaluate(input_fn(InputMode::evaluate),
                        {.steps = config.evaluation_steps, .verbose = config.verbose, .output = config.output});
  return result;
}

}  // namespace lockstep::train
