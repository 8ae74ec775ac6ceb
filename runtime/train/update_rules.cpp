// SPDX-License-Identifier: Apache-2.0
// Implements the rules. Their loops have no branches and no order of additions, so compilers vectorise them, and bits
// do not depend on the width of vectors. The build keeps square roots from setting errno, which no vector can.
#include "runtime/train/update_rules.hpp"

#include <cmath>

namespace lockstep::train {
namespace {

class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const SgdOptions& options) : options_(options) {}
  std::string_view name() const override { return "sgd"; }
  std::vector<Slot> slots() const override {
    return options_.momentum == 0 ? std::vector<Slot>{} : std::vector<Slot>{{"momentum"}};
  }
  void change(const StepNumbers& now, const UpdatedMemory& memory, const float* gradient) const override {
    const float rate = now.learning_rate;
    const float decay = rate * options_.weight_decay;
    const float momentum = options_.momentum;
    const std::size_t count = memory.elements.size();
    float* const __restrict w = memory.elements.data();
    const float* const __restrict g = gradient;
    if (momentum == 0) {
      for (std::size_t i = 0; i < count; ++i) w[i] = (w[i] - w[i] * decay) - rate * g[i];
      return;
    }
    float* const __restrict m = memory.slots[0];
    const float of_momentum = options_.nesterov ? momentum : 1;
    const float of_gradient = options_.nesterov ? rate : 0;
    for (std::size_t i = 0; i < count; ++i) {
      m[i] = momentum * m[i] - rate * g[i];
      w[i] = (w[i] - w[i] * decay) + (of_momentum * m[i] - of_gradient * g[i]);
    }
  }
  bool takes_rows() const override { return options_.momentum == 0 && options_.weight_decay == 0; }
  bool adds_rows() const override { return true; }
  void change_rows(const StepNumbers& now, const UpdatedMemory& memory,
                   const IndexedSlices<float>& rows) const override {
    const std::size_t size = rows.row_size();
    for (std::size_t i = 0; i < rows.indices().size(); ++i) {
      float* const w = memory.elements.data() + static_cast<std::size_t>(rows.indices()[i]) * size;
      const float* const g = rows.values().data() + i * size;
      for (std::size_t j = 0; j < size; ++j) w[j] -= now.learning_rate * g[j];
    }
  }

 private:
  SgdOptions options_;
};

// Returns 1 - beta^step in f32, as Keras calculates.
float share_behind(std::int64_t step, double beta) {
  return 1 - std::pow(static_cast<float>(beta), static_cast<float>(step));
}

class AdamRule final : public UpdateRule {
 public:
  AdamRule(const AdamOptions& options, std::string_view name) : options_(options), name_(name) {}
  std::string_view name() const override { return name_; }
  std::vector<Slot> slots() const override { return {{"momentum"}, {"velocity"}}; }
  void change(const StepNumbers& now, const UpdatedMemory& memory, const float* gradient) const override {
    const float rate = now.learning_rate * std::sqrt(share_behind(now.step, options_.beta_2)) /
                       share_behind(now.step, options_.beta_1);
    const float decay = now.learning_rate * options_.weight_decay;
    const auto new_m = static_cast<float>(1 - options_.beta_1);
    const auto new_v = static_cast<float>(1 - options_.beta_2);
    const float epsilon = options_.epsilon;
    const std::size_t count = memory.elements.size();
    float* const __restrict w = memory.elements.data();
    const float* const __restrict g = gradient;
    float* const __restrict m = memory.slots[0];
    float* const __restrict v = memory.slots[1];
    for (std::size_t i = 0; i < count; ++i) {
      m[i] += (g[i] - m[i]) * new_m;
      v[i] += (g[i] * g[i] - v[i]) * new_v;
      w[i] = (w[i] - w[i] * decay) - m[i] * rate / (std::sqrt(v[i]) + epsilon);
    }
  }

 private:
  AdamOptions options_;
  std::string_view name_;
};

class AdagradRule final : public UpdateRule {
 public:
  explicit AdagradRule(const AdagradOptions& options) : options_(options) {}
  std::string_view name() const override { return "adagrad"; }
  std::vector<Slot> slots() const override { return {{"accumulator", options_.initial_accumulator_value}}; }
  void change(const StepNumbers& now, const UpdatedMemory& memory, const float* gradient) const override {
    const float rate = now.learning_rate;
    const float decay = rate * options_.weight_decay;
    const float epsilon = options_.epsilon;
    const std::size_t count = memory.elements.size();
    float* const __restrict w = memory.elements.data();
    const float* const __restrict g = gradient;
    float* const __restrict sums = memory.slots[0];
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] += g[i] * g[i];
      w[i] = (w[i] - w[i] * decay) - rate * g[i] / std::sqrt(sums[i] + epsilon);
    }
  }
  bool takes_rows() const override { return options_.weight_decay == 0; }
  // Adds the squares of all rows before it uses one of the sums, as TensorFlow does.
  void change_rows(const StepNumbers& now, const UpdatedMemory& memory,
                   const IndexedSlices<float>& rows) const override {
    const std::size_t size = rows.row_size();
    for (const bool is_sum : {true, false}) {
      for (std::size_t i = 0; i < rows.indices().size(); ++i) {
        const std::size_t to = static_cast<std::size_t>(rows.indices()[i]) * size;
        float* const w = memory.elements.data() + to;
        float* const sums = memory.slots[0] + to;
        const float* const g = rows.values().data() + i * size;
        for (std::size_t j = 0; is_sum && j < size; ++j) sums[j] += g[j] * g[j];
        for (std::size_t j = 0; !is_sum && j < size; ++j)
          w[j] -= now.learning_rate * g[j] / std::sqrt(sums[j] + options_.epsilon);
      }
    }
  }

 private:
  AdagradOptions options_;
};

}  // namespace

std::shared_ptr<const UpdateRule> sgd_rule(const SgdOptions& options) { return std::make_shared<SgdRule>(options); }
std::shared_ptr<const UpdateRule> adam_rule(const AdamOptions& options, std::string_view name) {
  return std::make_shared<AdamRule>(options, name);
}
std::shared_ptr<const UpdateRule> adagrad_rule(const AdagradOptions& options) {
  return std::make_shared<AdagradRule>(options);
}

}  // namespace lockstep::train
