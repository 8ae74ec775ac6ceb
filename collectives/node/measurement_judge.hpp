// SPDX-License-Identifier: Apache-2.0
// Decides whether a measurement of thresholds counts, by the load on the machine and by the spread of its own times.
// The limits are in the table of docs/node.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/load_reading.hpp"

namespace lockstep::node {

// Names the reason why a measurement does not count.
enum class Doubt : std::uint8_t { none, stolen, off_core, switches, queue, spread };

// Returns the word of the cache file: "stolen", "off_core", ...
std::string_view to_word(Doubt doubt);
std::optional<Doubt> doubt_of(std::string_view word);
// Returns the reason as part of a sentence: "because other virtual machines took time from the cores".
std::string_view reason_of(Doubt doubt);

// Tells how a measurement went. Of the load and the spread, each is the worst member's.
struct MeasurementConditions {
  Load load;
  double spread = 1;     // median of (median of a way's rounds / its fastest round)
  int members = 1;       // that measured
  int processors = 1;    // of the machine
  bool crowded = false;  // members share cores: they wait for each other, so their own waits tell nothing
};

// Returns the figures for people: "0.1 % stolen, 0.3 % off the core, ...".
std::string to_text(const MeasurementConditions& conditions);

// Returns the first reason against the measurement, or `none` if it counts. A figure that is unknown is no reason.
Doubt judge(const MeasurementConditions& conditions);

}  // namespace lockstep::node
