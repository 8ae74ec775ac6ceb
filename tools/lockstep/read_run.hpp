// SPDX-License-Identifier: Apache-2.0
// Reads files that `lockstep bench --json` and `lockstep links --json` wrote.
#pragma once

#include <string>

#include "bench/row.hpp"

namespace lockstep::command {

// Reads one or several files, separated by commas; each of several is a launch. Throws Error usage or file.
bench::BenchRun read_run(const std::string& paths);

}  // namespace lockstep::command
