// SPDX-License-Identifier: Apache-2.0
// Measures the time that others took from the cores during a measurement, as far as the system tells.
#pragma once

#include "bench/row.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

// Reads the counters when it is made, and again in over().
class NoiseMeter {
 public:
  NoiseMeter();
  // Returns the noise since construction over all members, which all call it.
  Noise over(Communicator& all) const;

 private:
  struct Counters {
    double steal = 0;  // of /proc/stat; `time` is the sum of all its times
    double time = 0;
    double involuntary_switches = 0;
    double throttled_us = 0;
  };
  static Counters read();
  Counters before_;
};

}  // namespace lockstep::bench
