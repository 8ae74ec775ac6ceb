// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watchdog.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are the sanitizers'
extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

// Plugins of MPI and hwloc are closed before leaks are looked for, and what they leak could not be told
// from ours any more. In sanitized tests they stay open.
extern "C" __attribute__((visibility("default"))) int dlclose(void* handle) {
  if (__asan_init != nullptr) return 0;
  using Close = int (*)(void*);
  static const Close real = reinterpret_cast<Close>(::dlsym(RTLD_NEXT, "dlclose"));
  return real(handle);
}

namespace lockstep::test {
namespace {

using Clock = std::chrono::steady_clock;

struct State {
  std::mutex mutex;
  std::array<char, 256> name{};  // readable from a signal handler
  std::array<char, 64> who{};
  Clock::time_point begin;
  std::chrono::seconds deadline{};
  bool running = false;
  std::atomic<int> traced = 0;
};

State& state() {
  static State one;
  return one;
}

void say(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void say_who(std::string_view what) {
  say("\n[");
  say(state().who.data());
  say("] ");
  say(what);
  say(" in ");
  say(state().name[0] == 0 ? "set-up or shutdown" : state().name.data());
  say("\n");
}

void print_stack() {
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
}

void on_trace_signal(int) {
  say("  thread:\n");
  print_stack();
  ++state().traced;
}

void on_crash(int number) {
  say_who(strsignal(number));  // NOLINT: at this point a wrong word is better than none
  print_stack();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// Every thread prints its own stack, one after the other.
void trace_all_threads() {
  const auto me = static_cast<int>(::syscall(SYS_gettid));
  std::vector<int> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  }
  for (const int thread : threads) {
    if (thread == me) continue;
    const int before = state().traced;
    ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2);
    for (int i = 0; i < 200 && state().traced == before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void guard() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    State& now = state();
    {
      const std::lock_guard lock(now.mutex);
      if (!now.running || Clock::now() - now.begin < now.deadline) continue;
    }
    say_who("HANG: the deadline has passed");
    trace_all_threads();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the others want to print theirs
    ::_exit(124);
  }
}

}  // namespace

void start_watchdog(const std::string& who, std::chrono::seconds deadline) {
  rename_watchdog(who);
  state().deadline = deadline;
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), 1);  // loads its library now, not in a signal handler
  std::signal(SIGUSR2, on_trace_signal);
  const bool sanitized = __asan_init != nullptr || __tsan_init != nullptr;  // they print better ones
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    if (!sanitized) std::signal(number, on_crash);
  }
  std::thread(guard).detach();
}

void rename_watchdog(const std::string& who) {
  state().who.fill(0);
  who.copy(state().who.data(), state().who.size() - 1);
}

void watch_test(const std::string& name) {
  State& now = state();
  const std::lock_guard lock(now.mutex);
  now.name.fill(0);
  name.copy(now.name.data(), now.name.size() - 1);
  now.begin = Clock::now();
  now.running = true;
}

void unwatch_test() {
  const std::lock_guard lock(state().mutex);
  state().running = false;
  state().name.fill(0);
}

std::chrono::seconds take_deadline(int& argc, char** argv, std::chrono::seconds built_in) {
  constexpr std::string_view option = "--deadline=";
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(option)) continue;
    built_in = std::chrono::seconds(std::max(1, std::atoi(argv[i] + option.size())));
    std::rotate(argv + i, argv + i + 1, argv + argc);
    --argc;
  }
  return built_in;
}

}  // namespace lockstep::test
