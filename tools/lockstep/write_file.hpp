// SPDX-License-Identifier: Apache-2.0
// Writes a file as a whole or not at all: beside its place first, then moved there. A pipe or device, such as
// /dev/null, is written directly. "-" is standard output.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::command {

// Throws Error file with the path and the reason; the old content is then unchanged.
void write_file(const std::string& path, std::string_view content);

// Returns true if the path is a regular file, or does not exist: later output then replaces it.
bool is_replaced(const std::string& path);

// Throws Error file, with the option in its text, if it is clear before the work that the file cannot be written.
void refuse_unwritable(std::string_view option, const std::string& path);

}  // namespace lockstep::command
