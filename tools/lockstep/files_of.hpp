// SPDX-License-Identifier: Apache-2.0
// The files that members of a job have left.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Those that are named, and of folders those that members leave, with that end, in the order of their names. Throws
// Error usage where there are none; `setting` names the folder.
std::vector<std::string> files_of(const std::vector<std::string>& words, std::string_view end,
                                  std::string_view setting);

}  // namespace lockstep::command
