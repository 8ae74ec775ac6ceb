// SPDX-License-Identifier: Apache-2.0
// Which algorithm is the fastest where the members are now, by measuring: for each collective and size, those that the
// cost model finds best, in turns; and the table that planners take their choices from.
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

// One algorithm for one size.
struct AlgorithmTiming {
  std::string algorithm;
  std::uint64_t segment_bytes = 0;  // as a row of a table has it
  bool of_the_model = false;        // what is taken without a table
  double predicted_us = 0;          // by the model; 0: it has no price for it
  Summary time;
  Ratio against_model = {};  // the model's time divided by this one's
};

struct TunedSize {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  // as a row of a table counts them: the whole buffer, or a block
  std::vector<AlgorithmTiming> timings;

  // The fastest; the model's own where no other is faster beyond the noise.
  const AlgorithmTiming& best() const;
  const AlgorithmTiming& of_the_model() const;
};

struct TuneResult {
  int members = 1;
  int nodes = 1;
  std::uint64_t kind = 0;  // Topology::kind()
  std::string when;        // and where, for people
  std::vector<TunedSize> sizes;
  std::size_t wanted = 0;  // sizes that were to be measured
  bool interrupted = false;
};

// How many times as long as the tuned choices the model's take: the geometric mean over all sizes; 1 of none.
double cost_of_model(const TuneResult& tuning);
// Returns that in words: "1.23 times as long", or "as long, within 0.5 %".
std::string cost_text(const TuneResult& tuning);
// A table for LOCKSTEP_TABLE: a row for neighbouring sizes that are done alike, and what was measured as comments.
std::string table_of(const TuneResult& tuning);

struct TuneOptions {
  std::vector<Collective> collectives;
  std::vector<std::uint64_t> sizes;  // of all data of a member, as in a bench
  double seconds = 60;               // for all of it, about
  std::size_t most = 6;              // algorithms for a size
  std::uint64_t seed = 1;
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// All members call it with the same options.
TuneResult tune(Communicator& world, const TuneOptions& options);

}  // namespace lockstep::bench
