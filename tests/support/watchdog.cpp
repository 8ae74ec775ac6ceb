// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watchdog.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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
  std::chrono::seconds deadline{};  // of tests
  std::chrono::seconds limit{};     // of what is watched now
  bool running = false;
  bool leaving = false;  // somebody has found a reason to end, and will
  Roll roll;
  bool nobody_else = true;
  std::atomic<int> traced = 0;
};

State& state() {
  static State one;
  return one;
}

void say(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

// One write, which the lines of other ranks cannot come into; also called by signal handlers.
void say_who(std::string_view what) {
  std::array<char, 512> line{};
  std::size_t length = 0;
  const std::string_view where = state().name[0] == 0 ? "set-up or shutdown" : state().name.data();
  for (const std::string_view part :
       {std::string_view("\n["), std::string_view(state().who.data()), std::string_view("] "), what,
        std::string_view(" in "), where, std::string_view("\n")}) {
    length += part.copy(line.data() + length, line.size() - length);
  }
  say({line.data(), length});
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

// A launcher that ends a job drops what it has not read yet.
void wait_until_read(int stream) {
  struct stat what {};
  if (::fstat(stream, &what) != 0 || !S_ISFIFO(what.st_mode)) return;
  const auto end = Clock::now() + std::chrono::seconds(10);
  for (int left = 1; Clock::now() < end && ::ioctl(stream, FIONREAD, &left) == 0 && left > 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void on_crash(int number) {
  say_who(strsignal(number));  // NOLINT: at this point a wrong word is better than none
  print_stack();
  wait_until_read(STDERR_FILENO);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// Threads of libraries may, and then have no stack to show.
bool blocks_trace_signal(int thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  constexpr std::string_view field = "SigBlk:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    return (std::stoull(line.substr(field.size()), nullptr, 16) >> (SIGUSR2 - 1) & 1U) != 0;
  }
  return true;  // it has ended
}

// Every thread prints its own stack, one after the other; on a busy machine its turn may be long in coming.
void trace_all_threads() {
  const auto me = static_cast<int>(::syscall(SYS_gettid));
  std::vector<int> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  }
  for (const int thread : threads) {
    if (thread == me || blocks_trace_signal(thread)) continue;
    const int before = state().traced;
    if (::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) != 0) continue;
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (state().traced == before && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    wait_until_read(STDERR_FILENO);  // little at once is passed on in one piece
  }
}

[[noreturn]] void wait_for_the_end() {
  while (true) ::pause();
}

// The first to ask is the one to leave; for all others the end is near.
bool begin_to_leave() {
  const std::lock_guard lock(state().mutex);
  return !std::exchange(state().leaving, true);
}

// One that is stopped never has its say, so even those on the roll are not waited for without limit.
[[noreturn]] void leave_after_the_others() {
  const State& now = state();
  wait_until_read(STDOUT_FILENO);
  wait_until_read(STDERR_FILENO);
  now.roll.sign_off();
  const auto end = Clock::now() + now.deadline + std::chrono::minutes(1);
  while (now.roll.others_are_on() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!now.nobody_else) std::this_thread::sleep_for(std::chrono::seconds(5));
  ::_exit(124);
}

void guard() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    State& now = state();
    {
      const std::lock_guard lock(now.mutex);
      if (now.leaving) return;
      if (!now.running || Clock::now() - now.begin < now.limit) continue;
      now.leaving = true;
    }
    say_who("HANG: the deadline has passed");
    trace_all_threads();
    leave_after_the_others();
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

void watch_test(const std::string& name, std::optional<std::chrono::seconds> limit) {
  unwatch_test();
  State& now = state();
  const std::lock_guard lock(now.mutex);
  name.copy(now.name.data(), now.name.size() - 1);
  now.begin = Clock::now();
  now.limit = limit.value_or(now.deadline);
  now.running = true;
}

// What comes back after its deadline has hung all the same.
void unwatch_test() {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().leaving) {
      state().running = false;
      state().name.fill(0);
      return;
    }
  }
  wait_for_the_end();
}

void expect_others() { state().nobody_else = false; }

void expect_roll(const Roll& roll, bool all) {
  const std::lock_guard lock(state().mutex);
  state().roll = roll;
  state().nobody_else = all;
}

void leave(std::string_view why) {
  if (!begin_to_leave()) wait_for_the_end();
  say_who("gives up");
  say("  " + std::string(why) + "\n");
  leave_after_the_others();
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
