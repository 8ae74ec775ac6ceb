// SPDX-License-Identifier: Apache-2.0
// The files that members of a job have left.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Those that are named, and of folders those that members leave, with that end, in the order of their names. Throws
// Error usage where there are none; `setting` names the folder.
std::vector<std::string> files_of(const std::vector<std::string>& words, std::string_view end,
                                  std::string_view setting);

// Calls `read` for each file. One that it refuses (Error file) is named in a warning on standard error, and passed
// over. Throws Error file if no file can be read.
void read_each(const std::vector<std::string>& files, std::string_view setting,
               const std::function<void(const std::string& path)>& read);

}  // namespace lockstep::command
