// SPDX-License-Identifier: Apache-2.0
// Reads how much of a span of time others took from the calling thread's core. A measurement of speed goes by it. A
// figure that the system does not tell is `unknown`; nothing here throws.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

// Tells the load on the machine and on one thread over a span of time.
struct Load {
  static constexpr double unknown = -1;
  double stolen = unknown;    // share of the cores' time that the hypervisor gave to other machines
  double off_core = unknown;  // share of the span in which the thread did not run
  double switches = unknown;  // involuntary context switches of the thread per second
  double queue = unknown;     // threads that ran or waited for a core: the smaller number of both ends of the span
  bool operator==(const Load&) const = default;
};

// Holds the counters of one moment.
struct LoadCounters {
  double seconds = 0;      // of a steady clock
  double cpu_seconds = 0;  // of the calling thread
  std::optional<double> all_ticks;
  std::optional<double> stolen_ticks;
  std::optional<double> queue;
  std::optional<double> switches;
};

// Reads the counters now. `stat` is the text of /proc/stat; an empty or strange one leaves its counters empty.
LoadCounters load_counters(std::string_view stat);
// Returns the load between two moments.
Load load_between(const LoadCounters& before, const LoadCounters& after);

// Reads the counters when it is made, and again in over(). One thread does both.
class LoadReading {
 public:
  LoadReading();
  // Returns the load since this was made.
  Load over() const;

 private:
  LoadCounters before_;
};

}  // namespace lockstep
