// SPDX-License-Identifier: Apache-2.0
// Begins sessions, warns of unknown variables, and replaces _exit() to keep the right exit code.
#include "tools/lockstep/begin_session.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <string>
#include <vector>

#include "tools/lockstep/options.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/settings.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep::command {
namespace {

std::atomic<bool> starting = false;

class SessionStart {
 public:
  SessionStart() { starting = true; }
  ~SessionStart() { starting = false; }
  SessionStart(const SessionStart&) = delete;
  SessionStart& operator=(const SessionStart&) = delete;
};

// Returns the exit code to use if a library ends the process while a session begins.
int exit_code_of(int code) {
  if (!starting || code != 1) return code;  // a timeout of Lockstep has a code of its own
  const Error error(Code::mpi, "the MPI library could not start and ended the process; its own words are above",
                    "check TMPDIR, the limits (ulimit -n, -u, -s, -v), the loopback interface, PATH, and the launcher");
  std::cerr << text("lockstep: ", error.what(), "\n") << std::flush;
  return static_cast<int>(error.exit());
}

}  // namespace

Session begin_session(SessionOptions options) {
  const SessionStart mark;
  options.cluster_named = options.cluster_named || tf_config_names_cluster(process_environment);
  return Session(std::move(options));
}

void warn_of_unknown_variables() {
  if (!speaks()) return;
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view whole = *line;
    const std::string_view name = whole.substr(0, whole.find('='));
    const bool is_known = std::ranges::any_of(setting_rows(), [&](const SettingRow& row) { return row.name == name; });
    if (!is_known)
      lines.emplace_back(whole);  // a wrong value of a known variable does not concern a command without a session
  }
  constexpr std::size_t most = 8;
  const std::vector<std::string> warnings = Settings::from_lines(lines).warnings();
  for (std::size_t i = 0; i < std::min(most, warnings.size()); ++i)
    std::cerr << text("lockstep: WARN ", warnings[i], "\n");
  if (warnings.size() > most)
    std::cerr << text("lockstep: WARN ", warnings.size() - most,
                      " more such variables; `lockstep doctor --env` names them all\n");
}

void hint_at_more_ranks(std::string_view subcommand, std::string_view because) {
  std::cerr << text("lockstep ", subcommand, ": one rank ", because, "; start several: mpirun -n 2 lockstep ",
                    subcommand, " ...\n");
}

}  // namespace lockstep::command

// Replaces the C library's _exit(), for libraries that call it.
extern "C" __attribute__((visibility("default"))) void _exit(int code) {
  ::syscall(SYS_exit_group, lockstep::command::exit_code_of(code));
  __builtin_unreachable();
}
