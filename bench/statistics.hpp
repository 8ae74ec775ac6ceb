// SPDX-License-Identifier: Apache-2.0
// Summarizes samples with their uncertainty. The intervals assume no distribution, because times have long tails,
// spikes and clock steps. Nothing here is random, so the same samples always give the same text. It discards no sample:
// a spike stays in mean, p95, p99 and max.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

// Returns the quantile `q` of values in ascending order, linear between neighbours; 0 if there are none.
double quantile(std::span<const double> sorted, double q);
double median_of(std::vector<double> values);

// Summarizes independent samples. One sample is its own interval, and `n` shows that it means nothing.
Summary summarize(std::vector<double> samples);

// Summarizes samples in blocks, because the samples of a block share its conditions. One block tells nothing about the
// next one, so the interval is then the range.
Summary summarize_blocks(std::span<const std::vector<double>> blocks);

// Holds the medians of two candidates that were measured back to back.
struct PairedBlock {
  double theirs = 0;
  double ours = 0;
};

// Returns the median of theirs / ours. Blocks with a time that is not above zero have no ratio and do not count. With
// less than two blocks the interval is from zero to infinity.
Ratio ratio_of_blocks(std::span<const PairedBlock> blocks);

// Returns half of the interval as a fraction of the value; infinity if that has no meaning.
double half_width(const Interval& interval, double value);

// Returns, for each hypothesis, true if it is rejected. `alpha` is the probability of one false rejection among them
// (Holm).
std::vector<bool> holm(std::span<const double> p_values, double alpha);

// Returns the probability that Student's t is at least so far from zero, on either side.
double student_p(double t, std::size_t degrees_of_freedom);

// Returns the t that is exceeded, on either side, with the probability `p`.
double student_t(double p, std::size_t degrees_of_freedom);

}  // namespace lockstep::bench
