// SPDX-License-Identifier: Apache-2.0
// Reads counters of /proc and of the control group before and after a measurement.
#include "bench/noise.hpp"

#include <sys/resource.h>

#include <array>
#include <fstream>
#include <sstream>

#include "topology/base/cgroup.hpp"

namespace lockstep::bench {

NoiseMeter::NoiseMeter() : before_(read()) {}

NoiseMeter::Counters NoiseMeter::read() {
  Counters now;
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  std::string cpu;
  words >> cpu;
  double value = 0;
  constexpr int steal_column = 7;
  for (int column = 0; words >> value && column <= steal_column; ++column) {
    now.time += value;
    if (column == steal_column) now.steal = value;
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  now.involuntary_switches = static_cast<double>(usage.ru_nivcsw);
  now.throttled_us = lockstep::throttled_us();
  return now;
}

Noise NoiseMeter::over(Communicator& all) const {
  const Counters now = read();
  const double time = now.time - before_.time;
  std::array<double, 2> most = {time > 0 ? 100 * (now.steal - before_.steal) / time : 0,
                                now.throttled_us - before_.throttled_us};
  double switches = now.involuntary_switches - before_.involuntary_switches;
  all.all_reduce(most, max);
  switches = all.all_reduce(switches, sum);
  Noise noise;
  noise.steal_percent = most[0];
  noise.throttled_us = most[1];
  noise.involuntary_switches = static_cast<std::uint64_t>(switches);
  constexpr double much_steal = 5;
  noise.noisy = noise.steal_percent > much_steal || noise.throttled_us > 0;
  return noise;
}

}  // namespace lockstep::bench
