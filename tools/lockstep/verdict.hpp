// SPDX-License-Identifier: Apache-2.0
// Finds which rank waits for which, and why, from the status files of processes: a sentence for each communicator in
// which something is wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

// Returns one sentence for each communicator with an error.
std::vector<std::string> verdicts(const std::vector<status::ProcessSnapshot>& processes);

// Renames communicators that share a name, such as two splits of one: "half" becomes "half (3f2a)" by its id.
void tell_apart(std::vector<status::ProcessSnapshot>& processes);

// Returns true if nothing in the process can move, because it is stopped, held by a debugger, or has ended.
bool is_held(const status::ProcessSnapshot& process);

// Parses a file that a process left when a communicator failed. Throws Error file, with `name` in its text, if it is no
// such file.
status::ProcessSnapshot parse_status_file(std::string_view text, std::string_view name);

}  // namespace lockstep::command
