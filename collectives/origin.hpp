// SPDX-License-Identifier: Apache-2.0
// Names the line of the user's program that makes a call, for messages.
#pragma once

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

}  // namespace lockstep
