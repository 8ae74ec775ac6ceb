// SPDX-License-Identifier: Apache-2.0
// Whether processes can be watched here: valgrind does not know that call.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "tests/support/lacks.hpp"

namespace lockstep::test {

// Empty: they can.
inline std::string why_processes_are_not_watched() {
  const auto file = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (file < 0) return lacks("a system with pidfd_open, and no valgrind in between");
  ::close(file);
  return {};
}

}  // namespace lockstep::test
