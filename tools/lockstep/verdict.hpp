// SPDX-License-Identifier: Apache-2.0
// Who waits for whom, and why, from the books of processes: a sentence for each communicator in which something is
// wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/engine/book_reading.hpp"

namespace lockstep::command {

std::vector<std::string> verdicts(const std::vector<book::ProcessSeen>& processes);

// Whatever it is in, nothing moves there.
bool is_held(const book::ProcessSeen& process);

// Of a file that was left where a communicator failed. Throws Error file, with the name, where it is none.
book::ProcessSeen parse_book(std::string_view text, std::string_view name);

}  // namespace lockstep::command
