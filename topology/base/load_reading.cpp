// SPDX-License-Identifier: Apache-2.0
// Reads /proc/stat, and the counters of the calling thread.
#include "topology/base/load_reading.hpp"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

std::string proc_stat() {
  std::ifstream file("/proc/stat");
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

double thread_seconds() {
  timespec used{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Reads the line "cpu  user nice system idle iowait irq softirq steal ...".
void read_ticks(std::string_view line, LoadCounters& counters) {
  constexpr int steal_column = 7;
  std::istringstream words{std::string(line)};
  std::string cpu;
  words >> cpu;
  double all = 0;
  double value = 0;
  for (int column = 0; column <= steal_column && words >> value; ++column) {
    all += value;
    if (column != steal_column) continue;
    counters.all_ticks = all;
    counters.stolen_ticks = value;
  }
}

}  // namespace

LoadCounters load_counters(std::string_view stat) {
  LoadCounters now;
  for (const std::string& line : split(stat, '\n')) {
    constexpr std::string_view running = "procs_running ";
    if (line.starts_with("cpu ")) read_ticks(line, now);
    if (!line.starts_with(running)) continue;
    if (const auto number = parse_integer(trim(std::string_view(line).substr(running.size()))))
      now.queue = static_cast<double>(*number);
  }
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) == 0) now.switches = static_cast<double>(usage.ru_nivcsw);
  now.cpu_seconds = thread_seconds();
  now.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return now;
}

Load load_between(const LoadCounters& before, const LoadCounters& after) {
  Load load;
  const double span = after.seconds - before.seconds;
  if (span <= 0) return load;
  if (before.all_ticks && after.all_ticks && *after.all_ticks > *before.all_ticks)
    load.stolen = std::max(0.0, *after.stolen_ticks - *before.stolen_ticks) / (*after.all_ticks - *before.all_ticks);
  if (after.cpu_seconds > 0) load.off_core = std::clamp(1 - (after.cpu_seconds - before.cpu_seconds) / span, 0.0, 1.0);
  if (before.switches && after.switches) load.switches = (*after.switches - *before.switches) / span;
  if (before.queue && after.queue) load.queue = std::min(*before.queue, *after.queue);
  return load;
}

LoadReading::LoadReading() : before_(load_counters(proc_stat())) {}

Load LoadReading::over() const { return load_between(before_, load_counters(proc_stat())); }

}  // namespace lockstep
