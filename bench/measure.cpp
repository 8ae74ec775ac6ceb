// SPDX-License-Identifier: Apache-2.0
// Runs the measurement: warm-ups, block sizes, turns in random order, and the decision to stop.
#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "bench/noise.hpp"
#include "bench/statistics.hpp"

namespace lockstep::bench {

std::atomic<bool> interrupt_wanted = false;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

class MeasurementRun {
 public:
  MeasurementRun(Communicator& all, std::span<const BenchCandidate> candidates, const Effort& effort,
                 std::uint64_t seed)
      : all_(all), candidates_(candidates), effort_(effort), random_(static_cast<std::uint32_t>(seed)) {
    order_.resize(candidates.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    measured_.timings.resize(candidates.size());
    own_.resize(candidates.size());
  }

  Measurement run() {
    warm_up();
    const NoiseMeter meter;
    const double begin = now_us();
    std::size_t next_look = effort_.samples ? 1 : effort_.least_blocks;
    for (std::size_t block = 1;; ++block) {
      one_block();
      const double elapsed = told(now_us() - begin);
      if (measured_.interrupted || block >= blocks_wanted(elapsed)) break;
      if (effort_.samples || block < next_look) continue;
      if (elapsed > effort_.seconds * 1e6 || precise_enough()) break;
      next_look = block + std::max<std::size_t>(1, block / 4);
    }
    measured_.noise = meter.over(all_);
    for (std::size_t i = 0; i < own_.size(); ++i) gather_medians(i);
    return std::move(measured_);
  }

 private:
  // Chooses the length of a block: long compared with the clock's own time, and short enough for many blocks.
  void warm_up() {
    double longest = 0;
    for (const BenchCandidate& each : candidates_) {
      double shortest = 1e18;
      for (std::size_t i = 0; i < std::max<std::size_t>(2, effort_.warm_ups); ++i) {
        if (each.before) each.before();
        all_.barrier();
        const double begin = now_us();
        sample(each);
        shortest = std::min(shortest, now_us() - begin);
      }
      if (each.after) each.after();
      longest = std::max(longest, shortest);
    }
    const double agreed = all_.all_reduce(longest, max);
    constexpr double most = 500;
    in_block_ = static_cast<std::size_t>(std::clamp(effort_.block_us / std::max(agreed, 0.01), 1.0, most));
    if (effort_.samples) in_block_ = std::clamp<std::size_t>(*effort_.samples / effort_.least_blocks, 1, in_block_);
  }

  static double sample(const BenchCandidate& candidate) {
    if (candidate.timed) return candidate.timed();
    const double begin = now_us();
    candidate.once();
    return now_us() - begin;
  }

  std::size_t blocks_wanted(double elapsed) const {
    if (effort_.samples) return (*effort_.samples + in_block_ - 1) / in_block_;
    // An operation that takes longer than the whole time for it is nevertheless measured a few times.
    constexpr std::size_t few = 3;
    if (elapsed > 5 * effort_.seconds * 1e6) return few;
    return effort_.most_blocks;
  }

  void one_block() {
    std::shuffle(order_.begin(), order_.end(), random_);
    samples_.assign(candidates_.size() * in_block_ + 2, 0);
    for (const std::size_t which : order_) {
      const BenchCandidate& candidate = candidates_[which];
      for (std::size_t i = 0; i < in_block_; ++i) {
        if (candidate.before) candidate.before();
        all_.barrier();
        samples_[which * in_block_ + i] = sample(candidate);
      }
      if (candidate.after) candidate.after();
    }
    for (std::size_t which = 0; which < candidates_.size(); ++which) {
      const auto first = samples_.begin() + static_cast<std::ptrdiff_t>(which * in_block_);
      own_[which].insert(own_[which].end(), first, first + static_cast<std::ptrdiff_t>(in_block_));
    }
  }

  // The members agree on the elapsed time and on an early end. Both travel with the samples.
  double told(double elapsed) {
    samples_[samples_.size() - 2] = elapsed;
    samples_.back() = interrupt_wanted ? 1 : 0;
    all_.all_reduce(samples_, max);
    for (std::size_t which = 0; which < candidates_.size(); ++which) {
      const auto first = samples_.begin() + static_cast<std::ptrdiff_t>(which * in_block_);
      measured_.timings[which].blocks.emplace_back(first, first + static_cast<std::ptrdiff_t>(in_block_));
    }
    measured_.interrupted = samples_.back() != 0;
    return samples_[samples_.size() - 2];
  }

  // Returns the same on all members, because the samples are the same.
  bool precise_enough() const {
    const Summary ours = summarize_blocks(measured_.timings[0].blocks);
    if (half_width(ours.ci, ours.median) > effort_.precision) return false;
    for (std::size_t which = 1; which < candidates_.size(); ++which) {
      const Ratio ratio = ratio_of(measured_, which);
      if (half_width(ratio.ci, ratio.value) > effort_.precision) return false;
    }
    return true;
  }

  void gather_medians(std::size_t which) {
    const double median = median_of(std::move(own_[which]));
    auto& all = measured_.timings[which].rank_medians;
    all.resize(static_cast<std::size_t>(all_.size()));
    all_.all_gather(std::span(&median, 1), all);
  }

  Communicator& all_;
  std::span<const BenchCandidate> candidates_;
  Effort effort_;
  std::minstd_rand random_;
  std::vector<std::size_t> order_;
  std::size_t in_block_ = 1;
  std::vector<double> samples_;  // of a block: by candidate; then the values for the agreement
  std::vector<std::vector<double>> own_;
  Measurement measured_;
};

}  // namespace

Ratio ratio_of(const Measurement& measured, std::size_t which) {
  std::vector<PairedBlock> pairs;
  const auto& ours = measured.timings.front().blocks;
  const auto& theirs = measured.timings.at(which).blocks;
  for (std::size_t i = 0; i < ours.size(); ++i)
    pairs.push_back({.theirs = median_of(theirs[i]), .ours = median_of(ours[i])});
  return ratio_of_blocks(pairs);
}

Measurement measure(Communicator& all, std::span<const BenchCandidate> candidates, const Effort& effort,
                    std::uint64_t seed) {
  return MeasurementRun(all, candidates, effort, seed).run();
}

}  // namespace lockstep::bench
