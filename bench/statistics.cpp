// SPDX-License-Identifier: Apache-2.0
// Computes intervals of a median. For independent samples, the number of samples below the true median is binomial.
// That gives pairs of order statistics with a known coverage; Hettmansperger and Sheather (1986) interpolate between
// the two pairs next to 95 %. For blocks it uses the same counts per block, and inverts a t test over blocks.
#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace lockstep::bench {

namespace {

constexpr double confidence = 0.95;
constexpr double infinity = std::numeric_limits<double>::infinity();
// The smallest and the largest of five samples hold the median with a probability of 93.75 % only.
constexpr std::size_t enough_for_order_statistics = 6;

double mean_of(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> distances(std::span<const double> values, double center) {
  std::vector<double> all;
  all.reserve(values.size());
  for (const double value : values) all.push_back(std::abs(value - center));
  return all;
}

// Returns the value at a rank, which counts from 1 and may lie between two values.
double at_rank(std::span<const double> sorted, double rank) {
  const double last = static_cast<double>(sorted.size()) - 1;
  const double index = std::clamp(rank - 1, 0.0, last);
  const double below = std::floor(index);
  const double low = sorted[static_cast<std::size_t>(below)];
  const double high = sorted[static_cast<std::size_t>(std::min(below + 1, last))];
  return low + (index - below) * (high - low);
}

// Serves too few samples for order statistics. The interval is the range, or Student's interval if that reaches
// further.
Interval interval_of_few(std::span<const double> sorted) {
  const auto n = static_cast<double>(sorted.size());
  const double mean = mean_of(sorted);
  double squares = 0;
  for (const double value : sorted) squares += (value - mean) * (value - mean);
  const double reach = student_t(1 - confidence, sorted.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return {.low = std::min(sorted.front(), mean - reach), .high = std::max(sorted.back(), mean + reach)};
}

// Returns the number of samples from the ends, with a fraction, at which the interval has its coverage.
double depth_of_interval(std::size_t samples) {
  const auto n = static_cast<double>(samples);
  double log_chance = -n * std::numbers::ln2;  // probability that no sample is below the median
  double outside = 2 * std::exp(log_chance);   // probability that the median is beyond the ends of this depth
  double depth = 1;
  while (true) {
    log_chance += std::log((n - depth + 1) / depth);
    const double next = outside + 2 * std::exp(log_chance);
    if (next > 1 - confidence) {
      const double share = (1 - confidence - outside) / (next - outside);
      return depth + (n - depth) * share / (depth + (n - 2 * depth) * share);
    }
    outside = next;
    depth += 1;
  }
}

Interval interval_of_median(std::span<const double> sorted) {
  if (sorted.empty()) return {};
  if (sorted.size() == 1) return {.low = sorted[0], .high = sorted[0]};
  if (sorted.size() < enough_for_order_statistics) return interval_of_few(sorted);
  const double depth = depth_of_interval(sorted.size());
  return {.low = at_rank(sorted, depth), .high = at_rank(sorted, static_cast<double>(sorted.size()) + 1 - depth)};
}

// Returns everything but the interval.
Summary describe(std::span<const double> sorted) {
  if (sorted.empty()) return {};
  const double median = quantile(sorted, 0.5);
  return {.n = sorted.size(),
          .median = median,
          .ci = {},
          .mean = mean_of(sorted),
          .min = sorted.front(),
          .p95 = quantile(sorted, 0.95),
          .p99 = quantile(sorted, 0.99),
          .max = sorted.back(),
          .mad = median_of(distances(sorted, median))};
}

// Cuts Student's interval of few samples, because no time is below zero.
Summary never_below_zero(Summary summary) {
  if (summary.min >= 0) summary.ci.low = std::max(summary.ci.low, 0.0);
  return summary;
}

// Returns for every k how far the k smallest samples are from half of every block. It is the sum over blocks of the
// surplus of each, divided by its own standard error. It is near zero if k is near the median.
std::vector<double> imbalance(std::span<const std::size_t> block_of_sorted, std::span<const std::size_t> sizes) {
  std::vector<double> surplus;
  double sum = 0;
  double squares = 0;
  for (const std::size_t size : sizes) {
    surplus.push_back(-0.5 * static_cast<double>(size));
    sum += surplus.back();
    squares += surplus.back() * surplus.back();
  }
  std::vector<double> all{sum / std::sqrt(squares)};
  all.reserve(block_of_sorted.size() + 1);
  for (const std::size_t block : block_of_sorted) {
    squares += 2 * surplus[block] + 1;
    surplus[block] += 1;
    sum += 1;
    all.push_back(squares > 0 ? sum / std::sqrt(squares) : 0);
  }
  return all;
}

// Returns the ranks at which the imbalance first leaves [-limit, limit] on the way from the middle.
Interval ranks_within(std::span<const double> imbalances, double limit) {
  const std::size_t n = imbalances.size() - 1;
  std::size_t low = n / 2;
  while (low > 0 && imbalances[low] > -limit) --low;
  std::size_t high = (n + 1) / 2;
  while (high < n && imbalances[high] < limit) ++high;
  const auto crossing = [&](std::size_t before, double level) {
    const double step = imbalances[before + 1] - imbalances[before];
    const double share = step > 0 ? std::clamp((level - imbalances[before]) / step, 0.0, 1.0) : 0.5;
    // A count of k is a whole step, and the k-th sample is its middle.
    return static_cast<double>(before) + share + 0.5;
  };
  return {.low = crossing(low, -limit), .high = crossing(high - 1, limit)};
}

}  // namespace

double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  return at_rank(sorted, 1 + std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1));
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  Summary summary = describe(samples);
  summary.ci = interval_of_median(samples);
  return never_below_zero(summary);
}

Summary summarize_blocks(std::span<const std::vector<double>> blocks) {
  std::vector<std::pair<double, std::size_t>> samples;
  std::vector<std::size_t> sizes;
  std::vector<double> medians;
  for (const std::vector<double>& block : blocks) {
    if (block.empty()) continue;
    for (const double sample : block) samples.emplace_back(sample, sizes.size());
    sizes.push_back(block.size());
    medians.push_back(median_of(block));
  }
  std::sort(samples.begin(), samples.end());
  std::vector<double> sorted;
  std::vector<std::size_t> block_of_sorted;
  for (const auto& [sample, block] : samples) {
    sorted.push_back(sample);
    block_of_sorted.push_back(block);
  }
  Summary summary = describe(sorted);
  summary.ci = {.low = summary.min, .high = summary.max};
  if (sizes.size() < 2) return summary;
  // This is the t test over blocks, in terms of a sum divided by the root of its sum of squares.
  const auto count = static_cast<double>(sizes.size());
  const double t = student_t(1 - confidence, sizes.size() - 1);
  const Interval ranks = ranks_within(imbalance(block_of_sorted, sizes), t * std::sqrt(count / (count - 1 + t * t)));
  summary.ci = {.low = at_rank(sorted, ranks.low), .high = at_rank(sorted, ranks.high)};
  if (sizes.size() < enough_for_order_statistics) {
    // Counts cannot reach beyond the samples. With few blocks the interval may have to.
    std::sort(medians.begin(), medians.end());
    const Interval few = interval_of_few(medians);
    summary.ci = {.low = std::min(summary.ci.low, few.low), .high = std::max(summary.ci.high, few.high)};
  }
  return never_below_zero(summary);
}

Ratio ratio_of_blocks(std::span<const PairedBlock> blocks) {
  std::vector<double> logs;  // logarithms make theirs / ours and ours / theirs consistent
  logs.reserve(blocks.size());
  for (const PairedBlock& block : blocks) {
    if (block.theirs > 0 && block.ours > 0) logs.push_back(std::log(block.theirs / block.ours));
  }
  std::sort(logs.begin(), logs.end());
  Ratio ratio{.value = std::exp(quantile(logs, 0.5)), .ci = {.low = 0, .high = infinity}, .blocks = logs.size()};
  if (logs.size() < 2) return ratio;
  const Interval interval = interval_of_median(logs);
  ratio.ci = {.low = std::exp(interval.low), .high = std::exp(interval.high)};
  return ratio;
}

double half_width(const Interval& interval, double value) {
  const double half = (interval.high - interval.low) / 2;
  if (half == 0) return 0;
  return value == 0 || !std::isfinite(half) ? infinity : half / std::abs(value);
}

std::vector<bool> holm(std::span<const double> p_values, double alpha) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto chance = [&](std::size_t i) { return std::isnan(p_values[i]) ? 1 : p_values[i]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return chance(a) < chance(b); });
  std::vector<bool> rejected(p_values.size(), false);
  std::size_t left = order.size();
  for (const std::size_t i : order) {
    if (chance(i) > alpha / static_cast<double>(left)) break;
    rejected[i] = true;
    --left;
  }
  return rejected;
}

double student_p(double t, std::size_t degrees_of_freedom) {
  if (std::isnan(t)) return 1;
  t = std::abs(t);
  constexpr std::size_t as_good_as_normal = 1000;
  if (degrees_of_freedom > as_good_as_normal || std::isinf(t)) return std::erfc(t / std::numbers::sqrt2);
  // The finite series is 26.7.3 and 26.7.4 of Abramowitz and Stegun.
  const auto degrees = static_cast<double>(degrees_of_freedom);
  const double angle = std::atan(t / std::sqrt(degrees));
  const bool odd = degrees_of_freedom % 2 == 1;
  double term = odd ? std::cos(angle) : 1;
  double sum = 0;
  for (std::size_t k = odd ? 3 : 2; k <= degrees_of_freedom; k += 2) {
    sum += term;
    const auto factor = static_cast<double>(k);
    term *= std::cos(angle) * std::cos(angle) * (factor - 1) / factor;
  }
  const double inside = odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
  return std::clamp(1 - inside, 0.0, 1.0);
}

double student_t(double p, std::size_t degrees_of_freedom) {
  double low = 0;
  double high = 1;
  while (student_p(high, degrees_of_freedom) > p) high *= 2;
  constexpr int halvings = 60;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (student_p(middle, degrees_of_freedom) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace lockstep::bench
