// SPDX-License-Identifier: Apache-2.0
// Computes learning rates from the number of steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::train {

// Returns the learning rate of a step from the number of steps before it. All replicas call it at once, so it has no
// state.
using Schedule = std::function<float(std::int64_t step)>;

// Is a number, or a schedule.
class LearningRate {
 public:
  template <class N>
  requires(std::is_arithmetic_v<N>) LearningRate(N number)  // NOLINT(google-explicit-constructor)
      : number_(static_cast<float>(number)) {}
  template <class F>
  requires(std::is_invocable_r_v<float, F&, std::int64_t>)
      LearningRate(F schedule)  // NOLINT(google-explicit-constructor)
      : schedule_(std::move(schedule)) {}

  bool is_schedule() const { return static_cast<bool>(schedule_); }
  float at(std::int64_t step) const { return schedule_ ? schedule_(step) : number_; }

 private:
  float number_ = 0;
  Schedule schedule_;
};

// Returns the same rate for all steps.
Schedule constant(float learning_rate);
// Multiplies the rate by `decay_rate` in every `decay_steps` steps: smoothly, or at once with `staircase`.
struct ExponentialDecay {
  float initial_learning_rate = 0;
  std::int64_t decay_steps = 1;
  float decay_rate = 1;
  bool staircase = false;
  // Throws Error usage for `decay_steps` below 1, as the other schedules do.
  float operator()(std::int64_t step) const;
};
// Lets the rate rise from the initial one to `warmup_target` in `warmup_steps` steps, if there is a target. Then it
// falls like half a cosine, within `decay_steps` steps, to the share `alpha` of its beginning.
struct CosineDecay {
  float initial_learning_rate = 0;
  std::int64_t decay_steps = 1;
  float alpha = 0;
  std::optional<float> warmup_target = std::nullopt;
  std::int64_t warmup_steps = 0;
  float operator()(std::int64_t step) const;
};
// Has value i for steps up to boundary i, and the last value behind all boundaries. Throws Error usage unless there is
// one value more.
struct PiecewiseConstant {
  std::vector<std::int64_t> boundaries;
  std::vector<float> values;
  float operator()(std::int64_t step) const;
};
// Multiplies a schedule by (step + 1) / steps in the first steps.
Schedule warm_up(const LearningRate& to, std::int64_t steps);

// Returns the rate that a table has for a batch size. Throws Error usage for another size.
float scaled_lr(std::int64_t batch, const std::map<std::int64_t, float>& table);

}  // namespace lockstep::train
