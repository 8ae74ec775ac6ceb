// SPDX-License-Identifier: Apache-2.0
// Asks members on other hosts, through those on this host, where they stand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

// For each communicator with members of which no process is among `processes`: one of the others asks them all.
// Returns when all have answered, at the latest after 1 s. Returns why nobody could ask, by the communicator's id.
std::map<std::uint64_t, std::string> ask_unseen(const std::vector<status::ProcessSnapshot>& processes);

}  // namespace lockstep::command
