// SPDX-License-Identifier: Apache-2.0
// Reads the user's settings for the choice of algorithms: a table of measured rows, and names that are forced. Both are
// text and are parsed strictly. Each error names the line or word and the text that is allowed there.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "topology/base/text_file.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Is a range of numbers with both ends included; by default it holds all.
struct AmountRange {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  bool holds(std::uint64_t value) const { return least <= value && value <= most; }
  bool operator==(const AmountRange&) const = default;
};

// Is one measured answer. Bytes are those of the whole buffer, or of one block if the collective deals in blocks.
struct TableRow {
  Collective collective = Collective::all_reduce;
  AmountRange members;
  AmountRange nodes;
  AmountRange bytes;
  std::string algorithm;
  std::uint64_t segment_bytes = 0;  // pieces in which it is sent; 0: whole
  std::string provenance;
  int line = 0;  // in the table, from 1
};

// Limits the size of a table in bytes. A guess: a million rows would be a mistake.
inline constexpr std::size_t most_table_bytes = most_text_bytes;

// Parses a table. Each line is a row, and text after # is for people. The first row that fits a call counts:
//
//   # collective  members  nodes  bytes    algorithm           segment  provenance
//   all_reduce    2-8      1      0-16K    recursive_doubling  0        2026-11-21 node7, lockstep tune
//   broadcast     *        2+     1M+      chain               64K      a guess.
//
// A line "for 0123456789abcdef" names the kind of machines, and the members' places, for which the table was measured.
//
// A range is a number, "a-b", "a+" (a or more) or "*" (any); K, M, G and T are powers of 1024. Throws Error bad_setting
// for a wrong line; its text begins with `name`, the table's name.
std::vector<TableRow> parse_plan_table(std::string_view text, std::string_view name = "the plan table");

// Throws Error bad_setting if a line of the table names another kind than this topology's.
void refuse_foreign_table(std::string_view text, std::string_view name, const Topology& topology);

// Is the user's choice of an algorithm for a collective.
struct ForcedAlgorithm {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
};

// Parses "all_reduce:ring,broadcast:chain", or "auto" or nothing for none. Throws Error bad_setting with the nearest
// names; `name` is the setting that holds the text.
std::vector<ForcedAlgorithm> parse_forced_algorithms(std::string_view text,
                                                     std::string_view name = "LOCKSTEP_ALGORITHM");

// Returns 16384 for "16K". Returns nothing if the text is no whole number of at most 2^63.
std::optional<std::uint64_t> parse_amount(std::string_view text);

}  // namespace lockstep
