// SPDX-License-Identifier: Apache-2.0
// Implements initialisers by numbers that are drawn by their positions.
#include "runtime/train/initializers.hpp"

#include <atomic>
#include <cmath>
#include <mutex>
#include <numbers>

#include "runtime/data/random.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Is the program's sequence of seeds.
struct SeedSequence {
  std::mutex mutex;
  std::uint64_t seed = data::fresh_seed();
  std::uint64_t drawn = 0;
};

SeedSequence& seed_sequence() {
  static SeedSequence sequence;
  return sequence;
}

// Returns a number from 0 up to, but not including, 1.
float uniform_at(std::uint64_t seed, std::uint64_t position) {
  constexpr float step = 1.F / static_cast<float>(1U << 24U);
  return static_cast<float>(data::random_bits({seed, 0}, position) >> 40U) * step;
}

// Returns a draw of the standard normal distribution, by Box and Muller.
double normal_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
  constexpr double step = 1.0 / 4294967296.0;
  const std::uint64_t bits = data::random_bits({seed, stream}, position);
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(bits >> 32U) + 1) * step));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(bits & 0xFFFFFFFFU) * step);
}

double truncated_normal_at(std::uint64_t seed, std::uint64_t position) {
  for (std::uint64_t attempt = 1;; ++attempt) {
    const double drawn = normal_at(seed, attempt, position);
    if (std::abs(drawn) <= 2) return drawn;
  }
}

// Counts what one output depends on, and what one input reaches.
struct FanCounts {
  double inputs = 1;
  double outputs = 1;
};

FanCounts fan_counts(const TensorShape& shape) {
  if (shape.rank() == 0) return {};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  const double window = static_cast<double>(shape.count()) / static_cast<double>(shape[-1] * shape[-2]);
  return {static_cast<double>(shape[-2]) * window, static_cast<double>(shape[-1]) * window};
}

// Fills a tensor with `element(seed, position)`.
template <class F>
void draw_all(Tensor<float>& to, std::uint64_t seed, F&& element) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(element(seed, i));
}

struct NamedInitializer {
  std::string_view name;
  Initializer (*make)();
};
constexpr NamedInitializer named_initializers[] = {
    {"zeros", zeros},
    {"ones", ones},
    {"random_normal", [] { return random_normal(); }},
    {"random_uniform", [] { return random_uniform(); }},
    {"uniform", [] { return random_uniform(); }},
    {"glorot_uniform", [] { return glorot_uniform(); }},
    {"he_normal", [] { return he_normal(); }},
};

Initializer initializer_named(std::string_view name) {
  for (const NamedInitializer& each : named_initializers) {
    if (each.name == name) return each.make();
  }
  throw Error(Code::usage, text("an initializer of the name '", printable(name), "'"),
              "use zeros, ones, random_normal, random_uniform, glorot_uniform, or he_normal");
}

}  // namespace

void set_random_seed(std::uint64_t seed) {
  SeedSequence& sequence = seed_sequence();
  const std::lock_guard lock(sequence.mutex);
  sequence.seed = seed;
  sequence.drawn = 0;
}

std::uint64_t next_seed() {
  SeedSequence& sequence = seed_sequence();
  const std::lock_guard lock(sequence.mutex);
  return data::random_bits({sequence.seed, 1}, sequence.drawn++);
}

Initializer::Initializer(std::string_view name) : Initializer(initializer_named(name)) {}

Initializer::Initializer(Tensor<float> value)
    : Initializer([given = std::move(value)](Tensor<float>& to, std::uint64_t /*seed*/) {
        if (given.shape() != to.shape())
          throw Error(Code::usage,
                      text("a first value of the shape ", given.shape().to_string(), " for a variable of the shape ",
                           to.shape().to_string()),
                      "give a value of that shape");
        to = given;
      }) {}

Tensor<float> Initializer::operator()(const TensorShape& shape) const {
  Tensor<float> result(shape);
  fill_(result, seed_ ? *seed_ : next_seed());
  return result;
}

Initializer zeros() { return constant_initializer(0); }
Initializer ones() { return constant_initializer(1); }

Initializer constant_initializer(float value) {
  return Initializer([value](Tensor<float>& to, std::uint64_t /*seed*/) { to = Tensor<float>(to.shape(), value); }, 0);
}

Initializer random_normal(const NormalOptions& options) {
  return Initializer(
      [options](Tensor<float>& to, std::uint64_t seed) {
        draw_all(to, seed, [&](std::uint64_t key, std::uint64_t i) {
          return options.mean + options.deviation * normal_at(key, 0, i);
        });
      },
      options.seed);
}

Initializer random_uniform(const UniformOptions& options) {
  return Initializer(
      [options](Tensor<float>& to, std::uint64_t seed) {
        draw_all(to, seed, [&](std::uint64_t key, std::uint64_t i) {
          return options.low + (options.high - options.low) * uniform_at(key, i);
        });
      },
      options.seed);
}

Initializer glorot_uniform(const ScalingOptions& options) {
  return Initializer(
      [](Tensor<float>& to, std::uint64_t seed) {
        const FanCounts fans = fan_counts(to.shape());
        const auto limit = static_cast<float>(std::sqrt(6 / std::max(1.0, fans.inputs + fans.outputs)));
        draw_all(to, seed, [&](std::uint64_t key, std::uint64_t i) { return limit * (2 * uniform_at(key, i) - 1); });
      },
      options.seed);
}

Initializer he_normal(const ScalingOptions& options) {
  return Initializer(
      [](Tensor<float>& to, std::uint64_t seed) {
        constexpr double deviation_of_cut = 0.87962566103423978;  // Of the standard distribution cut at -2 and 2.
        const double deviation = std::sqrt(2 / std::max(1.0, fan_counts(to.shape()).inputs)) / deviation_of_cut;
        draw_all(to, seed, [&](std::uint64_t key, std::uint64_t i) { return deviation * truncated_normal_at(key, i); });
      },
      options.seed);
}

}  // namespace lockstep::train
