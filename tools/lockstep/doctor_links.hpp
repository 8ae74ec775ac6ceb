// SPDX-License-Identifier: Apache-2.0
// The doctor's try of the links between machines. An interface tells the rate that its driver was told, whatever the
// link carries; so the first rank of each machine sends to that of the next one for a moment, all at once.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/exchange.hpp"

namespace lockstep::command {

// What comes in over a link, and when. The best moment counts: a process that gets no core for a while is no slow link.
// A moment is long, because what the kernel kept meanwhile (6 MB at most) comes in at once.
class RateMeter {
 public:
  static constexpr double moment_s = 0.1;

  void add(double at_s, std::size_t bytes);
  // Returns the rate of the best moment, or of all if that is shorter; 0 if there is too little to tell.
  double mbit_per_s() const;

 private:
  struct Sample {
    double at_s;
    double bytes;  // that had come by then
  };
  std::vector<Sample> samples_;
};

// Returns for each rank the Mbit/s that came through to it from the machine before in the order of `subnet`. 0: the
// rank takes no part, or nothing came through. All members call it; it takes at most 0.9 s and what the exchange takes.
std::vector<double> try_links(Exchange& exchange, const Topology& topology, const CommonSubnet& subnet);

}  // namespace lockstep::command
