// SPDX-License-Identifier: Apache-2.0
// Holds the thresholds of a node's work that are fitted to the machine. The members measure them together when they
// first meet, in less than a second, in each of the first few jobs. A file keeps the measurements that counted
// (tuning_record.hpp), and the median is used. No threshold changes a bit of any result.
//
// A room owns a copy, which is equal on all members.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/node/measurement_judge.hpp"

namespace lockstep::node {

class Room;

// Is a threshold in bytes that no call reaches.
inline constexpr std::size_t never = std::size_t{1} << 40U;

// Holds the thresholds. A name that ends in `_from` is the smallest size at which the other way is taken. docs/node.md
// tells how each one is measured.
struct Tuning {
  std::size_t two_phase_from = 0;  // bytes of an all_reduce or reduce, which is then done by TwoPhaseForm
  std::size_t segment = 0;         // bytes of a segment in TwoPhaseForm
  std::size_t step = 0;            // bytes of a step in OnePhaseForm
  std::size_t flow_from = 0;       // bytes: the smallest part of a broadcast or scatter that gets a step of its own
  std::size_t spread_from = 0;     // bytes of a step, which then rotates within the slot
  std::size_t stream_from = 0;     // bytes of an output, which is then written past the caches
  std::size_t slow_write_from =
      0;                        // picoseconds per byte of a write that another member will read; see write_strategy.hpp
  std::size_t direct_from = 0;  // bytes of a call; smaller ones go through slots even if buffers can be reached
  std::size_t process_read_from = 0;   // bytes of a block, which is then read in the other's process
  std::size_t each_combines_from = 0;  // bytes of an all_reduce; below this, the last member to arrive combines for all
  bool operator==(const Tuning&) const = default;
};

// Limits a wait for the other members: the time in seconds, and a function that is asked now and then. It returns a
// text about a member that is known to be gone; without one it may be empty.
struct WaitLimit {
  double limit_seconds;
  std::function<std::optional<std::string>()> lost = {};
};

// Returns a guess from the size of the last cache, for members that do not measure.
Tuning guessed_tuning(int members);
// Does the same for a last cache of this size, in bytes.
Tuning guessed_tuning(int members, std::size_t cache);

// Tells how sure the thresholds of a room are.
struct TuningConfidence {
  std::uint32_t counted = 0;   // jobs whose measurement is in use; 0: the defaults are
  std::uint32_t refused = 0;   // jobs whose measurement was not believed
  std::uint32_t given_up = 0;  // thresholds that running programs have replaced
  Doubt last_doubt = Doubt::none;
  bool is_full = false;  // no further job measures
  double spread = 1;     // of the measurements that counted, their median; see MeasurementConditions
  bool operator==(const TuningConfidence&) const = default;
};
// Returns one line for people, such as "measured in 3 jobs of 5 (times within 4 %), 1 more not believed: ...".
std::string to_text(const TuningConfidence& confidence);

// Is what the first member tells the others: the thresholds, and whether all measure now.
struct TuningOffer {
  Tuning tuning;
  TuningConfidence confidence;
  bool measures = false;
};

// Holds the result of one measurement.
struct TuningMeasurement {
  Tuning tuning;
  MeasurementConditions conditions;
};

// Measures the thresholds together with all other members of the room. All call it, and none is in any other call. All
// get the same result. `crowded`: members share cores. A threshold that there is no time for is guessed. Throws Error
// stall if a member does not come within the limit, and peer_failed if one is gone.
TuningMeasurement measured_tuning(Room& room, bool crowded, const WaitLimit& waiting);

// Returns the time in nanoseconds of a step in which each member needs all others; it tells the distance of their
// cores. All members call it. Throws as measured_tuning() does.
double step_nanoseconds(Room& room, const WaitLimit& waiting);
// Returns the first member's offer on all members. All members call it. Throws as above.
TuningOffer broadcast_offer(Room& room, TuningOffer offer, const WaitLimit& waiting);

// Is a threshold with its name in the cache file and its least valid value.
struct TuningField {
  std::string_view name;
  std::size_t Tuning::*value;
  std::int64_t least = 64;
};
// Returns all thresholds.
std::span<const TuningField> tuning_fields();

// Returns the part of the keys that tells the machine and the build.
std::string machine_key();
// Returns the key of stored measurements: this machine, this build, the number of members and the distance of their
// cores. `nanoseconds` 0: the distance is not known.
std::string tuning_key(int members, bool one_process, bool crowded, double nanoseconds);

}  // namespace lockstep::node
