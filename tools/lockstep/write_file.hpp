// SPDX-License-Identifier: Apache-2.0
// A file that is there as a whole or not at all: written beside its place and moved there at the end.
// What is no regular file (a pipe, /dev/null) is written to as it is. "-" is standard output.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::command {

// Throws Error file, which names the path and the reason; what was there before is then unchanged.
void write_file(const std::string& path, std::string_view content);

// Whether it is a file, or will be one: what is written there later takes the place of what was before.
bool is_replaced(const std::string& path);

// What can be known before there is anything to write: throws Error file, which names the option too.
void refuse_unwritable(std::string_view option, const std::string& path);

}  // namespace lockstep::command
