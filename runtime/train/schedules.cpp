// SPDX-License-Identifier: Apache-2.0
// Implements the schedules with Keras' formulas.
#include "runtime/train/schedules.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

float half_cosine(float beginning, float alpha, std::int64_t step, std::int64_t steps) {
  const double share = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * share));
  return static_cast<float>(beginning * ((1 - static_cast<double>(alpha)) * cosine + static_cast<double>(alpha)));
}

void check_steps(std::string_view schedule, std::int64_t steps) {
  if (steps < 1) throw Error(Code::usage, text(schedule, " within ", steps, " steps"), "give 1 or more");
}

}  // namespace

Schedule constant(float learning_rate) {
  return [learning_rate](std::int64_t /*step*/) { return learning_rate; };
}

float ExponentialDecay::operator()(std::int64_t step) const {
  check_steps("ExponentialDecay", decay_steps);
  const double passed = static_cast<double>(step) / static_cast<double>(decay_steps);
  const double power = std::pow(static_cast<double>(decay_rate), staircase ? std::floor(passed) : passed);
  return static_cast<float>(initial_learning_rate * power);
}

float CosineDecay::operator()(std::int64_t step) const {
  check_steps("CosineDecay", decay_steps);
  if (!warmup_target) return half_cosine(initial_learning_rate, alpha, step, decay_steps);
  if (step >= warmup_steps) return half_cosine(*warmup_target, alpha, step - warmup_steps, decay_steps);
  const double share = static_cast<double>(step) / static_cast<double>(warmup_steps);
  return static_cast<float>(initial_learning_rate + share * (*warmup_target - initial_learning_rate));
}

float PiecewiseConstant::operator()(std::int64_t step) const {
  if (values.size() != boundaries.size() + 1)
    throw Error(Code::usage, text(values.size(), " learning rates for ", boundaries.size(), " boundaries"),
                "give one more value than boundaries");
  std::size_t at = 0;
  while (at < boundaries.size() && step > boundaries[at]) ++at;
  return values[at];
}

Schedule warm_up(const LearningRate& to, std::int64_t steps) {
  return [to, steps](std::int64_t step) {
    if (step >= steps) return to.at(step);
    return static_cast<float>(to.at(step) * static_cast<double>(step + 1) / static_cast<double>(steps));
  };
}

float scaled_lr(std::int64_t batch, const std::map<std::int64_t, float>& table) {
  const auto found = table.find(batch);
  if (found != table.end()) return found->second;
  std::vector<std::string> sizes;
  sizes.reserve(table.size());
  for (const auto& [size, rate] : table) sizes.push_back(text(size));
  throw Error(Code::usage, text("no learning rate for a batch of ", batch),
              text("the table has rates for ", join(sizes, ", ")));
}

}  // namespace lockstep::train
