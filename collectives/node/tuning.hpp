// SPDX-License-Identifier: Apache-2.0
// Holds the thresholds of a node's work that are fitted to the machine. The members measure them together when they
// first meet, in less than a second, in each of the first few jobs. A file keeps the measurements, and the median
// counts, so that one disturbed job does not decide for ever. No threshold changes a bit of any result.
//
// A room owns a copy, which is equal on all members. The file in ~/.cache/lockstep outlives the job.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::node {

class Room;

// Is a threshold in bytes that no call reaches.
inline constexpr std::size_t never = std::size_t{1} << 40U;

// Holds the thresholds. A name that ends in `_from` is the smallest size at which the other way is taken. docs/node.md
// tells how each one is measured.
struct Tuning {
  std::size_t two_phase_from = 0;     // bytes of an all_reduce or reduce, which is then done by TwoPhaseForm
  std::size_t segment = 0;            // bytes of a segment in TwoPhaseForm
  std::size_t step = 0;               // bytes of a step in OnePhaseForm
  std::size_t flow_from = 0;          // bytes: the smallest part of a broadcast or scatter that gets a step of its own
  std::size_t spread_from = 0;        // bytes of a step, which then rotates within the slot
  std::size_t stream_from = 0;        // bytes of a reduced output, which is then written past the caches
  std::size_t stream_moved_from = 0;  // bytes of an output that is only moved, which is then written past the caches
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

// Measures the thresholds together with all other members of the room. All call it, and none is in any other call.
// `crowded`: members share cores. A threshold that there is no time for is guessed. Throws Error stall if a member does
// not come within the limit, and peer_failed if one is gone.
Tuning measured_tuning(Room& room, bool crowded, const WaitLimit& waiting);

// Returns the time in nanoseconds of a step in which each member needs all others; it tells the distance of their
// cores. All members call it. Throws as measured_tuning() does.
double step_nanoseconds(Room& room, const WaitLimit& waiting);
// Returns the first member's tunings, at most `measurements_needed`, on all members. All members call it. Throws as
// above.
std::vector<Tuning> broadcast_tunings(Room& room, std::vector<Tuning> tunings, const WaitLimit& waiting);

// Returns the key of stored measurements: this machine, this build, the number of members and the distance of their
// cores. `nanoseconds` 0: the distance is not known.
std::string tuning_key(int members, bool one_process, bool crowded, double nanoseconds);
// Returns the path of the file that keeps them; empty if there is no folder for it.
std::string tuning_file(std::string_view key);

// Counts the measurements after which members measure no more; a guess.
inline constexpr std::size_t measurements_needed = 5;
// Returns the median of each field. `measured` must not be empty.
Tuning median_of(std::span<const Tuning> measured);

// Writes and reads the file's text: lines such as "two_phase_from 16384 65536 16384", with a value for every
// measurement. Text after # is for people. parse_tunings() returns nothing if a line is missing or wrong, or the key
// differs; an empty key fits all.
std::string to_text(std::span<const Tuning> measured, std::string_view key);
std::vector<Tuning> parse_tunings(std::string_view text, std::string_view key = {});

// Returns the stored measurements for this key; empty if there are none.
std::vector<Tuning> read_tunings(std::string_view key);
// Stores the measurements. If that fails, later jobs measure again.
void store_tunings(std::span<const Tuning> measured, std::string_view key) noexcept;

}  // namespace lockstep::node
