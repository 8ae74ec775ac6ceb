// SPDX-License-Identifier: Apache-2.0
// Changes variables by the gradients of all replicas.
//   SGD optimizer({.learning_rate = 0.01F, .momentum = 0.9F});
//   strategy.run([&] {
//     Tape tape;
//     const TapeTensor loss = ...;
//     optimizer.minimize(tape, loss, {w, b});
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gradient_reducer.hpp"
#include "runtime/train/schedules.hpp"
#include "runtime/train/tape.hpp"
#include "runtime/train/update_rules.hpp"

namespace lockstep::train {

// Holds options of all optimizers.
struct OptimizerOptions {
  std::string name = {};  // Begins the names of the optimizer's variables. Defaults to that of the rule.
  // Limits the norm of all gradients together, after they are summed, as tf.clip_by_global_norm does. 0 means no limit.
  float clip_norm = 0;
  // Lets each replica add up its gradients in so many steps. The last of them sends the means over these steps in one
  // message, and changes the variables. A schedule counts all steps, as in Keras.
  int accumulate_steps = 1;
  // Lets gradients travel as 16-bit floats.
  WireFormat wire = WireFormat::as_is;
  // Limit the buckets in which gradients travel while the backward pass runs: BucketOptions of the reducer. Small
  // models need small buckets: eight layers of 4 MiB hide 0.2 of what they can in buckets of 25 MiB, and 0.7 in these.
  std::size_t bucket_bytes = std::size_t{4} << 20U;
  std::size_t first_bucket_bytes = BucketOptions{}.first_bytes;
};

struct ApplyOptions {
  bool aggregate = true;  // False means that the program has summed the gradients, or that replicas shall differ.
};

// Is a handle: copies refer to the same optimizer. Replicas share one. minimize() and apply() are called in replicas,
// by all of them alike; the program outside of all strategies is a replica too. So is all code for a strategy with only
// one replica.
class Optimizer {
 public:
  // Takes "sgd", "adam", "adamw" or "adagrad", in any case, with the defaults. Throws Error usage for another word.
  Optimizer(std::string_view name);                                   // NOLINT(google-explicit-constructor)
  Optimizer(const char* name) : Optimizer(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
  // Uses a rule of the program's own.
  Optimizer(std::shared_ptr<const UpdateRule> rule, LearningRate learning_rate, OptimizerOptions options = {});

  // Changes the variables by the gradients of the loss, summed over all replicas. Gradients travel while the backward
  // pass runs. A variable on which the loss does not depend stays as it is. Throws Error usage if the loss depends on
  // none.
  void minimize(Tape& tape, const TapeTensor& loss, const std::vector<AnyVariable>& variables,
                Origin origin = Origin::here());
  // Divides each step into `parts` virtual replicas. `loss_of(part)` returns the loss of one, from 0 to parts - 1 over
  // all replicas; a tape records it. The sums are added by one tree, so that 1, 2 and 4 replicas get the same bits.
  // Each replica has a number of parts that is a power of two. Returns the sum of the losses of this replica's parts,
  // and an all_reduce of it has the same bits as well.
  float minimize(int parts, const std::function<TapeTensor(int part)>& loss_of,
                 const std::vector<AnyVariable>& variables, Origin origin = Origin::here());
  // Changes the variables by gradients that the program has. Variables without gradient are left out; an empty list
  // changes nothing. Throws Error usage if no variable of the list has one, in cross-replica context, and without
  // `aggregate` for a variable that all replicas share.
  void apply(const std::vector<VariableGradient>& gradients, ApplyOptions options = {}, Origin origin = Origin::here());

  // Makes the optimizer's own variables before the first step, in the variables' strategy: in cross-replica context, or
  // in all replicas.
  void build(const std::vector<AnyVariable>& variables, Origin origin = Origin::here());
  // Return the steps that have changed the variables, the rate of the next step, and the optimizer's own variables: the
  // number of steps ("sgd/iteration"), and slots ("sgd/momentum/dense/kernel") on the devices of their variables.
  std::int64_t iterations() const;
  float learning_rate() const;
  std::vector<AnyVariable> variables() const;
  // Changes the rate from the next step on. All processes do so alike. Throws Error usage for a schedule.
  void set_learning_rate(float rate);
  const std::string& name() const;
  // Returns the reducer of the gradients, so that counts of a data set can travel with them. It belongs to the last new
  // list of variables. Throws Error usage before build() and the first step.
  GradientReducer& reducer() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

// Moves against the gradient, or with a momentum of earlier gradients.
class SGD : public Optimizer {
 public:
  explicit SGD(const SgdOptions& options = {}, OptimizerOptions others = {})
      : Optimizer(sgd_rule(options), options.learning_rate, std::move(others)) {}
  explicit SGD(LearningRate rate, OptimizerOptions others = {})
      : SGD(SgdOptions{.learning_rate = std::move(rate)}, std::move(others)) {}
};
// Divides by the root of a moving mean of squares.
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {}, OptimizerOptions others = {}, std::string_view name = "adam")
      : Optimizer(adam_rule(options, name), options.learning_rate, std::move(others)) {}
  explicit Adam(LearningRate rate, OptimizerOptions others = {})
      : Adam(AdamOptions{.learning_rate = std::move(rate)}, std::move(others)) {}
};
// Is Adam with a decay of all variables.
struct AdamWOptions {
  LearningRate learning_rate = 0.001F;
  float weight_decay = 0.004F;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  float epsilon = 1e-7F;
};
class AdamW : public Adam {
 public:
  explicit AdamW(const AdamWOptions& options = {}, OptimizerOptions others = {})
      : Adam({options.learning_rate, options.beta_1, options.beta_2, options.epsilon, options.weight_decay},
             std::move(others), "adamw") {}
  explicit AdamW(LearningRate rate, OptimizerOptions others = {})
      : AdamW(AdamWOptions{.learning_rate = std::move(rate)}, std::move(others)) {}
};
// Divides by the root of the sum of all squares of earlier gradients.
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options = {}, OptimizerOptions others = {})
      : Optimizer(adagrad_rule(options), options.learning_rate, std::move(others)) {}
  explicit Adagrad(LearningRate rate, OptimizerOptions others = {})
      : Adagrad(AdagradOptions{.learning_rate = std::move(rate)}, std::move(others)) {}
};

}  // namespace lockstep::train
