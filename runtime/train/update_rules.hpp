// SPDX-License-Identifier: Apache-2.0
// Changes the elements of a variable by its gradient: the arithmetic of optimizers, with Keras' formulas. Each rule
// goes once over the elements. Programs can add rules of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/train/schedules.hpp"
#include "runtime/values/slices.hpp"

namespace lockstep::train {

// Holds the numbers of one step.
struct StepNumbers {
  float learning_rate = 0;
  std::int64_t step = 1;  // Counts the steps from 1.
};

// Refers to a variable's elements, and to those of its slots, such as the momentum.
struct UpdatedMemory {
  std::span<float> elements;
  std::span<float* const> slots;
};

// Is immutable, so that all replicas use one rule at once.
class UpdateRule {
 public:
  // Describes a variable that the rule keeps beside each variable.
  struct Slot {
    std::string_view name;
    float initial = 0;
  };

  UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;
  virtual ~UpdateRule() = default;

  virtual std::string_view name() const = 0;
  virtual std::vector<Slot> slots() const { return {}; }
  virtual void change(const StepNumbers& now, const UpdatedMemory& memory, const float* gradient) const = 0;
  // True if a gradient of some rows changes these rows only, by change_rows(). A row may come more than once. Other
  // rules get the whole tensor.
  virtual bool takes_rows() const { return false; }
  // True if equal rows may be added up before, because that changes no result but by rounding.
  virtual bool adds_rows() const { return false; }
  virtual void change_rows(const StepNumbers& /*now*/, const UpdatedMemory& /*memory*/,
                           const IndexedSlices<float>& /*rows*/) const {}
};

// Hold the options of the rules, with Keras' defaults. The optimizer computes the learning rate of a step.
// `weight_decay` first takes that share of a variable, times the learning rate, from it.
struct SgdOptions {
  LearningRate learning_rate = 0.01F;
  float momentum = 0;
  bool nesterov = false;
  float weight_decay = 0;
};
struct AdamOptions {
  LearningRate learning_rate = 0.001F;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  float epsilon = 1e-7F;
  float weight_decay = 0;
};
struct AdagradOptions {
  LearningRate learning_rate = 0.001F;
  float initial_accumulator_value = 0.1F;
  float epsilon = 1e-7F;
  float weight_decay = 0;
};
std::shared_ptr<const UpdateRule> sgd_rule(const SgdOptions& options);
std::shared_ptr<const UpdateRule> adam_rule(const AdamOptions& options, std::string_view name);
std::shared_ptr<const UpdateRule> adagrad_rule(const AdagradOptions& options);

}  // namespace lockstep::train
