// SPDX-License-Identifier: Apache-2.0
// Finds and reads the files that members of a job have left.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Returns the named files, and those in named folders that end with `end`, in the order of their names. Throws Error
// usage if there are none; `setting` names the variable of the folder.
std::vector<std::string> files_of(const std::vector<std::string>& words, std::string_view end,
                                  std::string_view setting);

// Calls `read` for each file. If `read` refuses a file (Error file), it warns on standard error and continues. Throws
// Error file if no file can be read.
void read_each(const std::vector<std::string>& files, std::string_view setting,
               const std::function<void(const std::string& path)>& read);

}  // namespace lockstep::command
