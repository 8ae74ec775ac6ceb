// SPDX-License-Identifier: Apache-2.0
// Makes a process write its own status when it gets a signal, which a launcher passes on to all hosts.
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "collectives/engine/status_reader.hpp"
#include "topology/base/error.hpp"
#include "topology/base/forked.hpp"
#include "topology/base/text.hpp"

namespace lockstep::status {
namespace {

// Holds the descriptor by which the signal handler wakes the thread; -1 before the first use.
std::atomic<int> bell = -1;

// Handles the signal in any thread and at any point, so it may only make async-signal-safe calls.
void ring(int /*signal*/) {
  const int error = errno;
  constexpr std::uint64_t once = 1;
  static_cast<void>(!::write(bell, &once, sizeof once));
  errno = error;
}

// Logs the state of this process's communicators, and writes a dump.
void tell(const Log& log) {
  const auto mine = read_process(::getpid());
  if (!mine || mine->communicators.empty()) return log.warn("this process has no communicator");
  for (const CommunicatorSnapshot& each : mine->communicators)
    log.warn(text('"', each.name, "\" rank ", each.rank, " of ", each.size, ": ", progress_text(each)));
  if (const auto folder = dump())
    log.warn(text("the last calls of the members on this host are in ", *folder, " -> lockstep why --all ", *folder));
}

[[noreturn]] void wait_for_signals(const Log& log) {
  for (;;) {
    std::uint64_t rings = 0;
    if (::read(bell, &rings, sizeof rings) != sizeof rings) continue;
    try {
      tell(log);
    } catch (const std::exception& error) {
      log.warn(error.what());
    }
  }
}

// Starts the waiting thread with all signals blocked, so that it takes none from the program's own threads.
void begin_to_wait(const Log& log) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread(wait_for_signals, log).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void write_on_signal(int signal, const Log& log) {
  if (signal == 0) return;
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  if (now.sa_handler == &ring) return;
  if (now.sa_handler != SIG_DFL)
    return log.warn(text("the program has a handler of its own for signal ", signal,
                         ", so LOCKSTEP_SIGNAL has no effect"
                         " -> set it to the other one of USR1 and USR2, or to none"));
  if (bell < 0) {
    const int made = ::eventfd(0, EFD_CLOEXEC);
    if (made < 0)
      throw system_error("creating an event descriptor for LOCKSTEP_SIGNAL", errno,
                         "check how many descriptors are left (ulimit -n)");
    keep_from_children(made);
    bell = made;
    begin_to_wait(log);
  }
  now = {};
  now.sa_handler = &ring;
  now.sa_flags = SA_RESTART;
  ::sigaction(signal, &now, nullptr);
}

}  // namespace lockstep::status
