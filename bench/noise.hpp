// SPDX-License-Identifier: Apache-2.0
// What else took time from the cores while something was measured, as far as the system tells.
#pragma once

#include "bench/row.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

class NoiseMeter {
 public:
  NoiseMeter();
  // Since it was made, over all members, who all call it.
  Noise over(Communicator& all) const;

 private:
  struct Counters {
    double steal = 0;  // of /proc/stat, and all of its times
    double time = 0;
    double involuntary_switches = 0;
    double throttled_us = 0;
  };
  static Counters read();
  Counters before_;
};

}  // namespace lockstep::bench
