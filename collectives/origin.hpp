// SPDX-License-Identifier: Apache-2.0
// Names the line of the user's program that makes a call, for messages.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Names a line; line 0 means that it is not known. Every collective takes one as its last argument, whose default is
// the caller's own line. The file name is not owned and must outlive the call.
struct Origin {
  const char* file = "";
  int line = 0;
  static constexpr Origin here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Returns "step.cpp:12", for instance; empty if the line is not known.
std::string place(const Origin& origin);

// Returns the same for one line in all programs, or 0 if the line is not known. Builds spell the path of a file in
// different ways (x.cpp, ./x.cpp, a/../a/x.cpp), so only its base name counts.
std::uint64_t fingerprint_of(const Origin& origin);

}  // namespace lockstep
