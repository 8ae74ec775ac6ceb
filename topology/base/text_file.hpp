// SPDX-License-Identifier: Apache-2.0
// Reads and writes small text files as a whole, safely against other users of the same folder.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "topology/base/descriptor.hpp"

namespace lockstep {

// Limits a text file to 16 MiB; a guess.
constexpr std::size_t most_text_bytes = std::size_t{16} << 20U;

// Opens a regular file for reading, without waiting for a pipe or a lease. Throws Error file; its text calls the file
// `shown`.
OwnedDescriptor open_regular_file(const std::string& path, const std::string& shown);

// Returns the whole text of a regular file, and never waits for a pipe or a lease. Throws Error file if the file
// cannot be read or is larger than `most` bytes. `named_by` is the source of the path, such as "LOCKSTEP_TABLE", for
// the message.
std::string read_text_file(const std::string& path, std::size_t most = most_text_bytes, std::string_view named_by = {});

// Replaces the file at `path` as a whole, or leaves it as it is. It writes beside it first, under a random name, so
// that nobody can put a symbolic link there. The file is for this user alone. Returns 0, or the errno of the failed
// step, which leaves nothing behind.
int replace_file(const std::string& path, std::string_view content) noexcept;

}  // namespace lockstep
