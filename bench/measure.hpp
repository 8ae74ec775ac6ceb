// SPDX-License-Identifier: Apache-2.0
// Measures collective operations in turns. Every block measures all candidates, in an order drawn anew, so that a
// disturbance hits all of them alike. A sample is the time of the slowest member from the end of a barrier to the end
// of its operation; it excludes the barrier.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "bench/row.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

// Returns the time of a monotonic clock in microseconds.
double now_us();

// Holds an operation to measure. All members run it together, many times.
struct BenchCandidate {
  std::string name;
  std::function<void()> once;
  std::function<void()> before = {};   // runs ahead of each sample; it is not timed
  std::function<void()> after = {};    // runs when another candidate's turn comes
  std::string algorithm = {};          // set if the name does not tell the algorithm
  std::function<double()> timed = {};  // replaces `once` and the clock: returns the time of a sample in us
};

// Tells when to stop.
struct Effort {
  double precision = 0.02;  // half of an interval, relative to the value
  double seconds = 1;       // for all candidates of a row together
  std::size_t warm_ups = 5;
  std::size_t least_blocks = 10;
  std::size_t most_blocks = 1000;
  double block_us = 2000;              // length of a block of one candidate
  std::optional<std::size_t> samples;  // exactly this many for each candidate, whatever the precision
};

// Holds the samples of one candidate.
struct Timing {
  std::vector<std::vector<double>> blocks;  // of samples, in us
  std::vector<double> rank_medians;         // by member, of its own times
};

// Holds the samples of all candidates, and the noise meanwhile.
struct Measurement {
  std::vector<Timing> timings;  // by candidate
  Noise noise;
  bool interrupted = false;
};

// Is set to end the measuring early, for example by a signal handler. If any member sets it, all end.
extern std::atomic<bool> interrupt_wanted;

// Measures the candidates in turns. All members call it with the same number of candidates, effort and seed.
Measurement measure(Communicator& all, std::span<const BenchCandidate> candidates, const Effort& effort,
                    std::uint64_t seed);

// Returns the time of candidate `which` divided by that of the first candidate.
Ratio ratio_of(const Measurement& measured, std::size_t which);

}  // namespace lockstep::bench
