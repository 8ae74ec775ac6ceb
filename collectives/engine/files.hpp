// SPDX-License-Identifier: Apache-2.0
// Files that members leave for people and for the command: JSON, whole or not at all, for their user alone.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// A text of JSON; what may not be printed is replaced.
std::string json_text(std::string_view words);

// Of this process.
std::string own_host();
std::string own_program();
// A host's name as a part of a file's.
std::string file_part(std::string host);

// These throw Error system; `setting` named the folder.
// The folder is there, and files can be made in it: said at the beginning, not when there is something to leave.
void make_folder(const std::string& folder, std::string_view setting);
void write_whole_file(const std::string& path, const std::string& words, std::string_view setting);

}  // namespace lockstep
