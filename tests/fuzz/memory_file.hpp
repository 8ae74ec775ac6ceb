// SPDX-License-Identifier: Apache-2.0
// A file in memory, for parsers that read files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.hpp"

namespace lockstep::fuzz {

// Returns the path of a file with this content, until the next call.
inline std::string file_with(std::string_view content) {
  static const int file = ::memfd_create("fuzzed", MFD_CLOEXEC);
  require(::ftruncate(file, 0) == 0);
  require(::pwrite(file, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return "/proc/self/fd/" + std::to_string(file);
}

}  // namespace lockstep::fuzz
