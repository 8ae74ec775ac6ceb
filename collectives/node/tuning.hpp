// SPDX-License-Identifier: Apache-2.0
// What of the work in a node is fitted to the machine: measured by the members together when they first meet, less than
// a second, in each of the first few jobs, and kept in a file; what counts is the middle of these, so that one bad
// moment does not decide for ever. It changes no bit of any result.
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

inline constexpr std::size_t never = std::size_t{1} << 40U;  // from so many bytes on

struct Tuning {
  std::size_t halves_from = 0;  // bytes of an all_reduce: from here on its work is shared out
  std::size_t segment = 0;      // bytes of a segment of halves
  std::size_t step = 0;         // bytes of a step of single
  std::size_t flow_from = 0;    // bytes of a block that is passed on: the least that goes in a step of its own
  std::size_t spread_from = 0;  // bytes of a step: from here on they move about in the slot
  std::size_t stream_from = 0;  // bytes of a sum: from here on it is written past the caches
  std::size_t drain_from = 0;   // bytes of what is only moved: from here on it is written past the caches
  std::size_t slow_from = 0;    // picoseconds of a byte that another member will read: see write_strategy.hpp
  std::size_t direct_from = 0;  // bytes: smaller things go through slots even where they need not
  std::size_t across_from = 0;  // bytes of a block: from here on one process reads it in the other's memory
  std::size_t alone_from = 0;   // bytes of an all_reduce: below, the last member to arrive combines for all
  bool operator==(const Tuning&) const = default;
};

// For the others: so long, and, asked now and then, until one of them is known to be gone, in words.
struct WaitLimit {
  double limit_seconds;
  std::function<std::optional<std::string>()> lost = {};
};

// A guess from the sizes of the caches, for those who do not measure.
Tuning guessed_tuning(int members);

// All members of the room call it, none being in any other work. `crowded`: they share cores. Throws Error stall when
// one does not come within the limit, and peer_failed when one is gone.
Tuning measured_tuning(Room& room, bool crowded, const WaitLimit& waiting);

// By all members as well: how long a step takes in which each needs all others. It tells how far apart their cores are.
double step_nanoseconds(Room& room, const WaitLimit& waiting);
// And: what the first member says is everybody's.
std::vector<Tuning> of_first(Room& room, std::vector<Tuning> tunings, const WaitLimit& waiting);

// Which measurements are of this machine, this build and so many members, as far apart. No nanoseconds: not known.
std::string tuning_key(int members, bool one_process, bool crowded, double nanoseconds);
// Where they are kept; empty: nowhere.
std::string tuning_file(std::string_view key);

// How many measurements are enough.
inline constexpr std::size_t enough = 5;
// Of each field the middle one.
Tuning middle_of(std::span<const Tuning> measured);

// "halves_from 16384 65536 16384", a line each with its value in every measurement; what follows # is for people. Empty
// where it is not whole, or for another key.
std::string to_text(std::span<const Tuning> measured, std::string_view key);
std::vector<Tuning> parse_tunings(std::string_view text, std::string_view key = {});

std::vector<Tuning> read_tunings(std::string_view key);
// Where they cannot be kept, it will be measured again.
void keep_tunings(std::span<const Tuning> measured, std::string_view key) noexcept;

}  // namespace lockstep::node
