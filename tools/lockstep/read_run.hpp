// SPDX-License-Identifier: Apache-2.0
// Files that `lockstep bench --json` and `lockstep links --json` wrote, read back.
#pragma once

#include <string>

#include "bench/row.hpp"

namespace lockstep::command {

// Of several files, separated by commas, each is a launch. Throws Error usage or file.
bench::BenchRun read_run(const std::string& paths);

}  // namespace lockstep::command
