// SPDX-License-Identifier: Apache-2.0
// Finds the fastest algorithms for the present places of the members. It measures, for each collective and size, the
// algorithms that the cost model finds best, in turns. The result becomes a table for planners.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "collectives/spec.hpp"

namespace lockstep {
class Communicator;
}

namespace lockstep::bench {

// Holds the measurement of one algorithm for one size.
struct AlgorithmTiming {
  std::string algorithm;
  std::uint64_t segment_bytes = 0;  // as in a row of a table
  bool of_the_model = false;        // the choice without a table
  double predicted_us = 0;          // by the model; 0: it has no price for it
  Summary time;
  Ratio against_model = {};  // the time of the model's choice divided by this one's
};

// Holds all algorithms that were measured for one size.
struct TunedSize {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  // as in a row of a table: the whole buffer, or a block
  std::vector<AlgorithmTiming> timings;

  // Returns the fastest algorithm; the model's own choice if no other is faster beyond the noise.
  const AlgorithmTiming& best() const;
  const AlgorithmTiming& of_the_model() const;
};

// Holds everything that tune() has measured.
struct TuneResult {
  int members = 1;
  int nodes = 1;
  std::uint64_t kind = 0;  // Topology::kind()
  std::string when;        // time and place, for people
  std::vector<TunedSize> sizes;
  std::size_t wanted = 0;  // sizes that were to be measured
  bool interrupted = false;
};

// Returns the time of the model's choices divided by that of the tuned ones: the geometric mean over all sizes; 1 if
// there are none.
double cost_of_model(const TuneResult& tuning);
// Returns that factor in words: "1.23 times as long", or "as long, within 0.5 %".
std::string cost_text(const TuneResult& tuning);
// Returns a table for LOCKSTEP_TABLE. It has a row for neighbouring sizes with the same choice; the measurements are
// comments.
std::string table_of(const TuneResult& tuning);

// Limits the measurement: its subjects, its time and the algorithms for a size.
struct TuneOptions {
  std::vector<Collective> collectives;
  std::vector<std::uint64_t> sizes;  // of all data of a member, as in a bench
  double seconds = 60;               // for everything, about
  std::size_t most = 6;              // algorithms for a size
  std::uint64_t seed = 1;
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// Measures the algorithms. All members call it with the same options.
TuneResult tune(Communicator& world, const TuneOptions& options);

}  // namespace lockstep::bench
