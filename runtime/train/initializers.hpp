// SPDX-License-Identifier: Apache-2.0
// Makes the first values of variables. The draws follow from a seed and an element's position, on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "runtime/values/tensor.hpp"

namespace lockstep::train {

// Sets the seed of the program. Initialisers and dropouts use it if they have none of their own, and then draw the same
// numbers in every run. Without a seed, each run draws other ones.
void set_random_seed(std::uint64_t seed);
// Returns the next seed of the program's sequence. All processes that share a seed draw in the same order.
std::uint64_t next_seed();

// Returns the first value of a variable of any shape. A kernel's last axis counts its outputs.
class Initializer {
 public:
  // Makes the elements of a tensor. The seed is one of the program, or the one that was given.
  using Function = std::function<void(Tensor<float>& to, std::uint64_t seed)>;

  explicit Initializer(Function fill, std::optional<std::uint64_t> seed = {}) : fill_(std::move(fill)), seed_(seed) {}
  // Takes the name of one of the functions below. Throws Error usage for another name.
  Initializer(std::string_view name);                                     // NOLINT(google-explicit-constructor)
  Initializer(const char* name) : Initializer(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
  // Takes the value itself. Throws Error usage if the variable has another shape.
  Initializer(Tensor<float> value);  // NOLINT(google-explicit-constructor)

  Tensor<float> operator()(const TensorShape& shape) const;

 private:
  Function fill_;
  std::optional<std::uint64_t> seed_;
};

struct NormalOptions {
  float mean = 0;
  float deviation = 0.05F;
  std::optional<std::uint64_t> seed = {};
};
struct UniformOptions {
  float low = -0.05F;
  float high = 0.05F;
  std::optional<std::uint64_t> seed = {};
};
struct ScalingOptions {
  std::optional<std::uint64_t> seed = {};
};
Initializer zeros();
Initializer ones();
Initializer constant_initializer(float value);
Initializer random_normal(const NormalOptions& options = {});
Initializer random_uniform(const UniformOptions& options = {});
// Draws between -limit and limit, where limit = sqrt(6 / (inputs + outputs)).
Initializer glorot_uniform(const ScalingOptions& options = {});
// Draws a normal distribution that is cut at two deviations. The result has the deviation sqrt(2 / inputs).
Initializer he_normal(const ScalingOptions& options = {});

}  // namespace lockstep::train
