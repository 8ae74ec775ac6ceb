// SPDX-License-Identifier: Apache-2.0
// What samples say and how sure it is. The intervals assume no distribution: times have long tails, spikes and
// steps of the clock. Nothing here is random, so the same samples always give the same words. It throws no sample
// away: a spike stays in mean, p95, p99 and max.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

// Of values in ascending order, linear between neighbours; 0 of none.
double quantile(std::span<const double> sorted, double q);
double median_of(std::vector<double> values);

// Of independent samples. One sample is its own interval: `n` tells that it means nothing.
Summary summarize(std::vector<double> samples);

// Of samples taken in blocks, where the samples of a block share its luck. With one block nothing is known about
// the next one, and the interval is the range.
Summary summarize_blocks(std::span<const std::vector<double>> blocks);

// The medians of two things measured back to back.
struct PairedBlock {
  double theirs = 0;
  double ours = 0;
};

// The median of theirs / ours. Blocks with a time that is not above zero have no ratio and are not counted; under two
// blocks the interval is from zero to infinity.
Ratio ratio_of_blocks(std::span<const PairedBlock> blocks);

// How far the interval reaches from its middle, as a fraction of the value; infinite where that has no meaning.
double half_width(const Interval& interval, double value);

// Which of the hypotheses are rejected when the chance of one false rejection among them shall be `alpha` (Holm).
std::vector<bool> holm(std::span<const double> p_values, double alpha);

// How many robust standard deviations each value is above the median. Deviations under a thousandth of the median
// count as none worth telling: without that floor, equal links with one tick of the clock between them look broken.
std::vector<double> robust_z(std::span<const double> values);

// The chance that Student's t is at least so far from zero, on either side.
double student_p(double t, std::size_t degrees_of_freedom);

// The t that is passed, on either side, with the chance `p`.
double student_t(double p, std::size_t degrees_of_freedom);

}  // namespace lockstep::bench
