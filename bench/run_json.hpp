// SPDX-License-Identifier: Apache-2.0
// A run as JSON, complete: what was run on what, and all rows. docs/bench-json.md explains the fields and
// docs/schema/bench-1.json checks them. Numbers that are not finite become null, and bytes that are no UTF-8
// become U+FFFD; both come back as written.
#pragma once

#include <string>
#include <string_view>

#include "bench/row.hpp"

namespace lockstep::bench {

// A line for each row, so that a difference of two files says which row differs; ends with a line feed.
std::string to_json(const BenchRun& run);

// Fields that are not known are passed over. Anything else that is not what to_json writes is an Error
// (Code::file) that begins with `name` and has the place: "rows[3].time_us.median is missing".
BenchRun parse_run(std::string_view json, std::string_view name);

}  // namespace lockstep::bench
