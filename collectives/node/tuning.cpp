// SPDX-License-Identifier: Apache-2.0
// Guesses thresholds, names them, and makes the key of their measurements.
#include "collectives/node/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/streaming.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

constexpr std::array known_fields = {TuningField{"two_phase_from", &Tuning::two_phase_from},
                                     TuningField{"segment", &Tuning::segment},
                                     TuningField{"flow_from", &Tuning::flow_from},
                                     TuningField{"spread_from", &Tuning::spread_from},
                                     TuningField{"stream_from", &Tuning::stream_from},
                                     TuningField{"slow_write_from", &Tuning::slow_write_from, 0},
                                     TuningField{"direct_from", &Tuning::direct_from},
                                     TuningField{"process_read_from", &Tuning::process_read_from},
                                     TuningField{"each_combines_from", &Tuning::each_combines_from, 1},
                                     TuningField{"step", &Tuning::step}};

std::string read_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && (line.starts_with("model name") || line.starts_with("CPU part")))
      return std::string(trim(line.substr(colon + 1)));
  }
  return "unknown processor";
}

// Returns the processor's name, which a process reads once, because Linux asks each core for its frequency meanwhile.
const std::string& processor() {
  static const std::string* const known = new std::string(read_processor());  // outlives statics, as communicators may
  return *known;
}

// Returns the class of a distance between cores. Each class reaches four times as far as the one before: cores that
// share caches of one core, the last cache, or only the board.
std::string distance(double nanoseconds) {
  if (nanoseconds <= 0) return {};
  double class_end = 50;
  while (class_end < nanoseconds) class_end *= 4;
  return text(", ", class_end / 4, " to ", class_end, " ns apart");
}

}  // namespace

std::span<const TuningField> tuning_fields() { return known_fields; }

// The second cache holds a member's working data; results that no cache holds are written past the caches. More than 16
// members would take too long if each read all lines, so the last one combines for all.
Tuning guessed_tuning(int members) { return guessed_tuning(members, last_cache_size()); }

Tuning guessed_tuning(int members, std::size_t cache) {
  const auto n = static_cast<std::size_t>(std::max(1, members));
  constexpr std::size_t least = 1024;
  constexpr std::size_t least_streamed = 16U << 20U;
  return {.two_phase_from = std::max(least, cache / 512 / n),
          .segment = std::max(16 * least, cache / 512),
          .step = std::max(16 * least, cache / 512),
          .flow_from = never,
          .spread_from = never,
          .stream_from = std::max(least_streamed, cache / 2),
          .slow_write_from = never,
          .direct_from = std::max(least, cache / 8192),
          .process_read_from = never,

          .each_combines_from = members > 16 ? never : 1};
}

std::string machine_key() {
  return text(processor(), ", ", format_bytes(last_cache_size()), " cache, ", kernel_target(), ", ",
              std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)), " processors, ");
}

std::string tuning_key(int members, bool one_process, bool crowded, double nanoseconds) {
  return text(machine_key(), members, one_process ? " threads" : " processes", crowded ? " sharing cores" : "",
              distance(nanoseconds), ", version 17");
}

std::string to_text(const TuningConfidence& confidence) {
  const auto jobs = [](std::uint32_t number) { return text(number, number == 1 ? " job" : " jobs"); };
  std::string all = "defaults";
  if (confidence.counted > 0) {
    all = text("measured in ", jobs(confidence.counted), "; times within ", std::llround(100 * (confidence.spread - 1)),
               " %");
  } else if (confidence.refused == 0) {
    all += ", since nothing was measured";
  }
  if (confidence.refused > 0) {
    all += text("; ", confidence.refused, confidence.refused == 1 ? " measurement was" : " measurements were",
                " not believed, the last ", reason_of(confidence.last_doubt));
  }
  if (confidence.given_up > 0) all += text("; running programs changed ", confidence.given_up);
  if (confidence.is_full && confidence.counted == 0 && confidence.refused > 0) all += "; no more jobs measure";
  return all;
}

}  // namespace lockstep::node
