// SPDX-License-Identifier: Apache-2.0
// What people say about the choice of algorithms: a table of rows that were measured, and names that are forced.
// Both are text, parsed strictly; each refusal names the line or word and what is allowed there.
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

struct AmountRange {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  bool holds(std::uint64_t value) const { return least <= value && value <= most; }
  bool operator==(const AmountRange&) const = default;
};

// One measured answer. Bytes are those of the whole buffer, or of one block where a collective deals in blocks.
struct TableRow {
  Collective collective = Collective::all_reduce;
  AmountRange members;
  AmountRange nodes;
  AmountRange bytes;
  std::string algorithm;
  std::uint64_t segment_bytes = 0;  // pieces in which it is sent; 0: whole
  std::string provenance;
  int line = 0;
};

// The largest table that is read, in bytes: a million rows are no table but a mistake.
inline constexpr std::size_t most_table_bytes = most_text_bytes;

// One row a line; what follows a # is for people; the first row that fits counts:
//
//   # collective  members  nodes  bytes    algorithm           segment  provenance
//   all_reduce    2-8      1      0-16K    recursive_doubling  0        2026-11-21 node7, lockstep tune
//   broadcast     *        2+     1M+      chain               64K      a guess
//
// A line "for 0123456789abcdef" says on which kind of machines, and with members at which places, the table was
// measured.
//
// A range is a number, "a-b", "a+" (and more) or "*" (any); K, M, G and T are powers of 1024. Throws Error
// bad_setting, with `name` for the table.
std::vector<TableRow> parse_plan_table(std::string_view text, std::string_view name = "the plan table");

// Throws Error bad_setting where the table says that it is for others than these.
void refuse_foreign_table(std::string_view text, std::string_view name, const Topology& topology);

struct ForcedAlgorithm {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
};

// "all_reduce:ring,broadcast:chain", or "auto" for none. Throws Error bad_setting with the nearest names; `name` is
// who says so.
std::vector<ForcedAlgorithm> parse_forced_algorithms(std::string_view text,
                                                     std::string_view name = "LOCKSTEP_ALGORITHM");

// "16K" is 16384. Nothing when it is no whole number of at most 2^63.
std::optional<std::uint64_t> parse_amount(std::string_view text);

}  // namespace lockstep
