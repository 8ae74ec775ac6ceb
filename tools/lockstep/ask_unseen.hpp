// SPDX-License-Identifier: Apache-2.0
// Asks members on other hosts for their state, through members on this host.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

// Asks, for each communicator, the members without a process among `processes`, through one that has one. It returns
// when all have answered, at the latest after 1 s. It returns the reasons why no member could ask, by the
// communicator's id.
std::map<std::uint64_t, std::string> ask_unseen(const std::vector<status::ProcessSnapshot>& processes);

}  // namespace lockstep::command
