// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

constexpr std::size_t most_text_bytes = std::size_t{16} << 20U;

// The whole text of a regular file. Throws Error file when it cannot be read or is larger than `most`; `named_by` is
// what has given its path, such as "LOCKSTEP_TABLE".
std::string read_text_file(const std::string& path, std::size_t most = most_text_bytes, std::string_view named_by = {});

// Replaces the file at `path` as a whole, or leaves it as it is. Writes beside it first, under a random name, so that
// nobody can put a symbolic link there; the file is for this user alone. Returns 0, or the errno of the step that
// failed, which leaves nothing behind.
int replace_file(const std::string& path, std::string_view content) noexcept;

}  // namespace lockstep
