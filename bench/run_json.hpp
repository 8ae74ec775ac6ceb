// SPDX-License-Identifier: Apache-2.0
// Writes and reads a run as complete JSON: the configuration and all rows. docs/bench-json.md explains the fields and
// docs/schema/bench-1.json checks them. Numbers that are not finite become null. Bytes that are not UTF-8 become
// U+FFFD, and stay so when read.
#pragma once

#include <string>
#include <string_view>

#include "bench/row.hpp"

namespace lockstep::bench {

// Returns JSON with a line for each row, so that a difference of two files shows the row that differs. It ends with a
// line feed.
std::string to_json(const BenchRun& run);

// Reads a run, and ignores unknown fields. Any other deviation from the output of to_json() is an Error (Code::file).
// Its text begins with `name` and has the place: "rows[3].time_us.median is missing".
BenchRun parse_run(std::string_view json, std::string_view name);

}  // namespace lockstep::bench
