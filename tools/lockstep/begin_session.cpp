// SPDX-License-Identifier: Apache-2.0
#include "tools/lockstep/begin_session.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "topology/machine/launcher.hpp"

namespace lockstep::command {
namespace {

std::atomic<bool> starting = false;

class Starting {
 public:
  Starting() { starting = true; }
  ~Starting() { starting = false; }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;
};

// The exit code to leave with when somebody leaves while a session begins.
int judge(int code) {
  if (!starting || code != 1) return code;  // a time-out of ours has a code of its own
  const Error error(
      Code::mpi, "the MPI library could not start and ended the process; its own words are above",
      "look at TMPDIR, the limits (ulimit -n, -u, -s, -v), the loopback interface, PATH, and the launcher");
  std::cerr << text("lockstep: ", error.what(), "\n") << std::flush;
  return static_cast<int>(error.exit());
}

}  // namespace

Session begin_session(SessionOptions options) {
  const Starting mark;
  options.cluster_named = options.cluster_named || tf_config_names_cluster([](const char* name) {
                            return static_cast<const char*>(std::getenv(name));
                          });
  return Session(std::move(options));
}

}  // namespace lockstep::command

// Stands in front of the C library's, for libraries that call it.
extern "C" __attribute__((visibility("default"))) void _exit(int code) {
  ::syscall(SYS_exit_group, lockstep::command::judge(code));
  __builtin_unreachable();
}
