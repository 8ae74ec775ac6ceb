// SPDX-License-Identifier: Apache-2.0
// How long collective operations take, measured in turns: every block measures all candidates, in an order drawn anew,
// so that what disturbs one disturbs the others. A sample is the slowest member's time from its leave of a barrier
// until its operation is over; the barrier is not part of it.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "bench/row.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

// Of a clock that only goes forward.
double now_us();

// All members run it together, often.
struct BenchCandidate {
  std::string name;
  std::function<void()> once;
  std::function<void()> before = {};   // done ahead of each sample, and not timed
  std::function<void()> after = {};    // done when another candidate's turn comes
  std::string algorithm = {};          // where the name does not say all
  std::function<double()> timed = {};  // instead of `once`, with a clock of its own: says how many us a sample is
};

// When to stop.
struct Effort {
  double precision = 0.02;  // half of an interval, relative
  double seconds = 1;       // for all candidates of a row together
  std::size_t warm_ups = 5;
  std::size_t least_blocks = 10;
  std::size_t most_blocks = 1000;
  double block_us = 2000;              // of one candidate
  std::optional<std::size_t> samples;  // so many for each candidate, whatever the precision
};

struct Timing {
  std::vector<std::vector<double>> blocks;  // of samples, in us
  std::vector<double> rank_medians;         // of the members' own times
};

struct Measurement {
  std::vector<Timing> timings;  // by candidate
  Noise noise;
  bool interrupted = false;
};

// Set by whoever wants the measuring to end early, such as a signal handler. Any member's counts for all.
extern std::atomic<bool> interrupt_wanted;

// All members call it with as many candidates and the same effort and seed.
Measurement measure(Communicator& all, std::span<const BenchCandidate> candidates, const Effort& effort,
                    std::uint64_t seed);

// The first candidate against another: theirs divided by ours.
Ratio ratio_of(const Measurement& measured, std::size_t which);

}  // namespace lockstep::bench
