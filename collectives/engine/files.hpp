// SPDX-License-Identifier: Apache-2.0
// Writes the files that processes leave for people and for the `lockstep` command. They are in JSON, appear as a whole
// or not at all, and only their user may read them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns the words as a JSON string with its quotes. Replaces characters that cannot be printed.
std::string json_text(std::string_view words);

// Return the name of this process's host ("unknown" if the system does not tell), and of its program.
std::string own_host();
std::string own_program();
// Returns the host's name in a form that can be a part of a file name.
std::string file_part(std::string host);

// Makes the folder, unless it exists, and checks that files can be made in it. Throws Error system, which names the
// environment variable `setting` that named the folder. Called at the start, so that an error does not come only when
// there is something to write.
void make_folder(const std::string& folder, std::string_view setting);
// Replaces the file by one with these words. Throws Error system as make_folder() does.
void write_whole_file(const std::string& path, const std::string& words, std::string_view setting);

}  // namespace lockstep
