// SPDX-License-Identifier: Apache-2.0
// Intervals are judged by what they promise: over a thousand synthetic measurements with a known truth, about 950
// must hold it. 930 to 970 are three standard errors; the seeds are fixed.
#include "bench/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sanitized.hpp"

namespace lockstep::bench {
namespace {

constexpr int runs = 1000;
constexpr int least = 930;
constexpr int most = 970;
constexpr double infinity = std::numeric_limits<double>::infinity();

// The distributions of the standard library differ between libraries; these do not.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : bits_(seed) {}
  double uniform() { return (static_cast<double>(bits_() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  std::mt19937_64 bits_;
};

enum class Shape : std::uint8_t { normal, log_normal, spikes };
constexpr std::array shapes = {Shape::normal, Shape::log_normal, Shape::spikes};

// A time with the luck `z`, which is normal.
double sample(Shape shape, double z, Noise& noise) {
  if (shape == Shape::log_normal) return 20 * std::exp(0.5 * z);
  const double time = 100 + 2 * z;
  const bool spike = shape == Shape::spikes && noise.uniform() < 0.02;
  return spike ? time * (2 + 8 * noise.uniform()) : time;
}

double true_median(Shape shape) {
  if (shape == Shape::log_normal) return 20;
  // With spikes, half of all is 0.5 / 0.98 of the others: 0.02558 standard deviations above their median.
  return shape == Shape::spikes ? 100 + 2 * 0.02558 : 100;
}

std::string label(Shape shape, std::size_t n) {
  return "shape " + std::to_string(static_cast<int>(shape)) + ", " + std::to_string(n);
}

std::vector<double> samples(Shape shape, std::size_t n, Noise& noise) {
  std::vector<double> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(sample(shape, noise.normal(), noise));
  return all;
}

// Blocks of twelve samples, which share `shared` of the variance.
std::vector<std::vector<double>> blocks_of_samples(Shape shape, std::size_t blocks, double shared, Noise& noise) {
  std::vector<std::vector<double>> all(blocks);
  for (std::vector<double>& block : all) {
    const double luck = noise.normal();
    for (int i = 0; i < 12; ++i) {
      block.push_back(sample(shape, std::sqrt(shared) * luck + std::sqrt(1 - shared) * noise.normal(), noise));
    }
  }
  return all;
}

// The truth is `ratio`.
std::vector<PairedBlock> paired_blocks(Shape shape, std::size_t blocks, double ratio, Noise& noise) {
  std::vector<PairedBlock> all;
  for (std::size_t i = 0; i < blocks; ++i) {
    const double luck = std::exp(0.3 * noise.normal());  // of both, as they are measured back to back
    const double theirs = ratio * luck * sample(shape, noise.normal(), noise);
    all.push_back({.theirs = theirs, .ours = luck * sample(shape, noise.normal(), noise)});
  }
  return all;
}

template <class Holds>
void expect_honest(const std::string& what, Holds holds) {
  int held = 0;
  for (int i = 0; i < runs; ++i) held += holds() ? 1 : 0;
  EXPECT_GE(held, least) << what;
  EXPECT_LE(held, most) << what;
}

TEST(Quantile, IsLinearBetweenNeighbours) {
  const std::vector<double> values{10, 20, 30, 40};
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 1), 40);
  EXPECT_EQ(quantile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 37);
  EXPECT_EQ(quantile(values, 7), 40);
  EXPECT_EQ(quantile(values, -1), 10);
  EXPECT_EQ(quantile(std::vector<double>{3}, 0.99), 3);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

TEST(Summary, OfNoneAndOfOneIsDefined) {
  EXPECT_EQ(summarize({}), Summary{});
  const Summary one = summarize({7});
  EXPECT_EQ(one.n, 1U);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.ci, (Interval{.low = 7, .high = 7}));
  EXPECT_EQ(one.mad, 0);
  EXPECT_EQ(one.max, 7);
}

TEST(Summary, OfTenByHand) {
  // The order statistics 2 and 9 cover 97.85 %, 3 and 8 cover 89.06 %.
  const Summary ten = summarize({3, 1, 2, 10, 9, 8, 4, 5, 7, 6});
  EXPECT_EQ(ten.n, 10U);
  EXPECT_EQ(ten.median, 5.5);
  EXPECT_NEAR(ten.ci.low, 2.657658, 1e-6);
  EXPECT_NEAR(ten.ci.high, 8.342342, 1e-6);
  EXPECT_EQ(ten.mean, 5.5);
  EXPECT_EQ(ten.min, 1);
  EXPECT_DOUBLE_EQ(ten.p95, 9.55);
  EXPECT_DOUBLE_EQ(ten.p99, 9.91);
  EXPECT_EQ(ten.max, 10);
  EXPECT_EQ(ten.mad, 2.5);
}

TEST(Summary, OfTwoKnowsLittle) {
  const Summary two = summarize({1, 2});
  EXPECT_EQ(two.ci.low, 0);
  EXPECT_NEAR(two.ci.high, 1.5 + 12.7062 * 0.5, 1e-3);
}

TEST(Summary, ShowsARareSpikeInTheTailOnly) {
  std::vector<double> all(400);
  std::iota(all.begin(), all.end(), 1000.0);
  const Summary before = summarize(all);
  all.back() = 1e6;
  const Summary once = summarize(all);
  EXPECT_EQ(once.max, 1e6);
  EXPECT_EQ(once.p99, before.p99);
  std::fill(all.end() - 8, all.end(), 1e6);
  const Summary often = summarize(all);
  EXPECT_EQ(often.p99, 1e6);
  EXPECT_EQ(often.p95, before.p95);
  EXPECT_EQ(often.median, before.median);
  EXPECT_EQ(often.ci, before.ci);
  EXPECT_EQ(often.mad, before.mad);
  EXPECT_GT(often.mean, 10 * before.mean);
}

TEST(Summary, IntervalIsHonest) {
  Noise noise(1);
  for (const Shape shape : shapes) {
    for (const std::size_t n : {5U, 10U, 30U, 100U, 400U}) {
      expect_honest(label(shape, n), [&] { return summarize(samples(shape, n, noise)).ci.holds(true_median(shape)); });
    }
  }
}

TEST(SummaryOfBlocks, IntervalIsHonestWhereSamplesShareLuck) {
  Noise noise(2);
  for (const Shape shape : shapes) {
    for (const std::size_t blocks : {4U, 10U, 30U, 100U}) {
      if (test::sanitized && blocks > 10) continue;  // a minute
      expect_honest(label(shape, blocks), [&] {
        return summarize_blocks(blocks_of_samples(shape, blocks, 0.8, noise)).ci.holds(true_median(shape));
      });
    }
  }
}

TEST(SummaryOfBlocks, IntervalIsNoLongerThanNeededWhereTheyDoNot) {
  Noise noise(3);
  double of_blocks = 0;
  double of_samples = 0;
  for (int i = 0; i < 100; ++i) {
    const auto blocks = blocks_of_samples(Shape::normal, 30, 0, noise);
    std::vector<double> all;
    for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
    const Summary summary = summarize_blocks(blocks);
    const Summary plain = summarize(all);
    EXPECT_EQ(summary.median, plain.median);
    EXPECT_EQ(summary.p99, plain.p99);
    EXPECT_EQ(summary.n, plain.n);
    of_blocks += summary.ci.high - summary.ci.low;
    of_samples += plain.ci.high - plain.ci.low;
  }
  EXPECT_NEAR(of_blocks / of_samples, 1.03, 0.05);
}

TEST(SummaryOfBlocks, OfOneBlockIsTheRange) {
  EXPECT_EQ(summarize_blocks({}), Summary{});
  const std::vector<std::vector<double>> blocks{{}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  EXPECT_EQ(summarize_blocks(blocks).ci, (Interval{.low = 1, .high = 10}));
}

TEST(SummaryOfBlocks, OfEqualTimesIsAPoint) {
  const std::vector<std::vector<double>> blocks(8, std::vector<double>(5, 3.5));
  EXPECT_EQ(summarize_blocks(blocks).ci, (Interval{.low = 3.5, .high = 3.5}));
  EXPECT_EQ(summarize(std::vector<double>(40, 3.5)).ci, (Interval{.low = 3.5, .high = 3.5}));
}

TEST(Ratio, IntervalIsHonest) {
  Noise noise(4);
  for (const Shape shape : shapes) {
    for (const std::size_t blocks : {5U, 10U, 30U, 100U}) {
      expect_honest(label(shape, blocks),
                    [&] { return ratio_of_blocks(paired_blocks(shape, blocks, 1.3, noise)).ci.holds(1.3); });
    }
  }
}

TEST(Ratio, FindsADifferenceOfFivePercent) {
  Noise noise(5);
  int found = 0;
  int invented = 0;
  for (int i = 0; i < 100; ++i) {
    found += ratio_of_blocks(paired_blocks(Shape::spikes, 30, 1.05, noise)).ci.low > 1 ? 1 : 0;
    invented += ratio_of_blocks(paired_blocks(Shape::spikes, 30, 1, noise)).ci.holds(1) ? 0 : 1;
  }
  EXPECT_GE(found, 90);
  EXPECT_LE(invented, 10);
}

TEST(Ratio, OfFewBlocks) {
  const std::vector<PairedBlock> blocks{{.theirs = 3, .ours = 2}, {.theirs = 0, .ours = 1}, {.theirs = 1, .ours = -1}};
  const Ratio one = ratio_of_blocks(blocks);
  EXPECT_DOUBLE_EQ(one.value, 1.5);
  EXPECT_EQ(one.blocks, 1U);
  EXPECT_EQ(one.ci, (Interval{.low = 0, .high = infinity}));
  EXPECT_EQ(ratio_of_blocks({}), (Ratio{.value = 1, .ci = {.low = 0, .high = infinity}, .blocks = 0}));
}

TEST(Ratio, SaysTheSameWhenSidesAreChanged) {
  Noise noise(6);
  std::vector<PairedBlock> blocks = paired_blocks(Shape::log_normal, 25, 2, noise);
  const Ratio ratio = ratio_of_blocks(blocks);
  for (PairedBlock& block : blocks) std::swap(block.theirs, block.ours);
  const Ratio turned = ratio_of_blocks(blocks);
  EXPECT_NEAR(turned.value, 1 / ratio.value, 1e-12);
  EXPECT_NEAR(turned.ci.low, 1 / ratio.ci.high, 1e-12);
  EXPECT_NEAR(turned.ci.high, 1 / ratio.ci.low, 1e-12);
  EXPECT_EQ(turned.blocks, 25U);
}

TEST(HalfWidth, IsAFractionOfTheValue) {
  EXPECT_DOUBLE_EQ(half_width({.low = 90, .high = 110}, 100), 0.1);
  EXPECT_DOUBLE_EQ(half_width({.low = -2, .high = 0}, -4), 0.25);
  EXPECT_EQ(half_width({.low = 0, .high = 1}, 0), infinity);
  EXPECT_EQ(half_width({.low = 0, .high = infinity}, 1), infinity);
  EXPECT_EQ(half_width({.low = 0, .high = 0}, 0), 0);
}

TEST(Holm, ByHand) {
  // 0.005 <= 0.05/4 and 0.01 <= 0.05/3, but 0.03 > 0.05/2; 0.04 <= 0.05/1 comes too late.
  EXPECT_EQ(holm(std::vector<double>{0.01, 0.04, 0.03, 0.005}, 0.05), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(holm(std::vector<double>{0.02, 0.04}, 0.05), (std::vector<bool>{true, true}));
  EXPECT_EQ(holm(std::vector<double>{0.04, 0.04}, 0.05), (std::vector<bool>{false, false}));
  EXPECT_EQ(holm(std::vector<double>{std::nan(""), 0.001}, 0.05), (std::vector<bool>{false, true}));
  EXPECT_TRUE(holm({}, 0.05).empty());
}

TEST(Student, AgreesWithTheTables) {
  EXPECT_NEAR(student_t(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(student_t(0.05, 2), 4.3027, 1e-4);
  EXPECT_NEAR(student_t(0.05, 9), 2.2622, 1e-4);
  EXPECT_NEAR(student_t(0.01, 30), 2.7500, 1e-4);
  EXPECT_NEAR(student_t(0.05, 100'000), 1.9600, 1e-4);
  EXPECT_NEAR(student_p(-2.7764, 4), 0.05, 1e-5);
  EXPECT_NEAR(student_p(3.1824, 3), 0.05, 1e-5);
  EXPECT_EQ(student_p(0, 4), 1);
  EXPECT_EQ(student_p(infinity, 4), 0);
  EXPECT_EQ(student_p(std::nan(""), 4), 1);
}

}  // namespace
}  // namespace lockstep::bench
