// SPDX-License-Identifier: Apache-2.0
// Tries the links between machines. An interface reports the rate of its driver, but not the rate of the link. So the
// first rank of each machine sends to that of the next one for a moment, all at the same time.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/exchange.hpp"

namespace lockstep::command {

// Records the bytes that arrive over a link, and when. The best moment counts, because a process without a core for a
// while does not mean a slow link. A moment is long, because bytes that the kernel kept meanwhile (6 MB at most) arrive
// at once.
class RateMeter {
 public:
  static constexpr double moment_s = 0.1;

  // Adds bytes that arrived at `at_s`, in seconds.
  void add(double at_s, std::size_t bytes);
  // Returns the rate of the best moment, or of the whole time if that is shorter; 0 if the data is too short.
  double mbit_per_s() const;

 private:
  struct Sample {
    double at_s;
    double bytes;  // bytes that had arrived by then
  };
  std::vector<Sample> samples_;
};

// Returns for each rank the Mbit/s that arrived from the machine before it in the order of `subnet`. The value 0 means
// that the rank takes no part, or that nothing arrived. It takes at most 0.9 s plus the exchange. All members call it.
std::vector<double> try_links(Exchange& exchange, const Topology& topology, const CommonSubnet& subnet);

}  // namespace lockstep::command
