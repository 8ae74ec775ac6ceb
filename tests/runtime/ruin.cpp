// SPDX-License-Identifier: Apache-2.0
// A program for tests of what becomes of the others when a member comes to ruin, in any way, at any time.
//   ruin HOW WHEN RANK
//   HOW   kill, stop, segv, exit (in good order, as it thinks), throw, memory (there is none left), fork (killed, with
//         a child that has all that it had open, and sleeps);
//         in calls also unmap, free (the memory of one that is under way)
//   WHEN  setup (the others make their first communicator), call (they are in the midst of calls), shutdown (they have
//         made their last call, and end)
// What happens is said on standard output, with the time in microseconds by the monotonic clock.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <lockstep.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using lockstep::text;

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void say(const std::string& words) { std::cout << words << std::endl; }

void exhaust_memory() {
  constexpr std::size_t part = 1U << 20U;
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const rlimit none{static_cast<rlim_t>(used.ru_maxrss) << 10U, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &none);
  std::vector<std::vector<char>> all;
  for (;;) all.emplace_back(part);
}

void leave_a_child() {
  constexpr unsigned longer_than_a_test_s = 60;
  if (::fork() != 0) return;
  say(text("child ", ::getpid()));
  ::sleep(longer_than_a_test_s);
  ::_exit(0);
}

constexpr std::size_t count = 1000;

void unmap_under_way(lockstep::Communicator& world) {
  constexpr std::size_t bytes = count * sizeof(int);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto request = world.all_reduce_async(std::span(static_cast<int*>(memory), count), lockstep::max);
  say(text("ruined at ", now_us()));
  ::mprotect(memory, bytes, PROT_NONE);  // as good as gone; what is gone may be taken by another thread
  request.wait();
}

void free_under_way(lockstep::Communicator& world) {
  auto numbers = std::make_unique<std::vector<int>>(count, 1);
  auto request = world.all_reduce_async(*numbers, lockstep::max);
  say(text("ruined at ", now_us()));
  numbers.reset();
  request.wait();
}

void come_to_ruin(const std::string& how, lockstep::Communicator* world = nullptr) {
  if (how == "unmap") return unmap_under_way(*world);
  if (how == "free") return free_under_way(*world);
  if (how == "fork") leave_a_child();
  say(text("ruined at ", now_us()));
  if (how == "fork") std::raise(SIGKILL);
  if (how == "kill") std::raise(SIGKILL);
  if (how == "stop") std::raise(SIGSTOP);
  if (how == "segv") std::raise(SIGSEGV);
  if (how == "exit") std::exit(0);
  if (how == "throw") throw std::runtime_error("an exception of the program's own");
  if (how == "memory") exhaust_memory();
}

// When the calls throw; what else has to end before the program does takes its own time.
template <class Calls>
void make(const Calls& calls) {
  try {
    calls();
  } catch (const lockstep::Error&) {
    say(text("told at ", now_us()));
    throw;
  }
}

void run(int argc, char** argv) {
  if (argc != 4) throw std::invalid_argument("usage: ruin HOW WHEN RANK");
  const std::string how = argv[1];
  const std::string when = argv[2];
  lockstep::Session session = lockstep::start(argc, argv);
  const bool is_mine = session.rank() == std::atoi(argv[3]);
  say("ready");
  if (is_mine && when == "setup") come_to_ruin(how);
  make([&] {
    lockstep::Communicator& world = session.world();
    std::vector<int> numbers(count, 1);
    constexpr int steps = 200;
    for (int step = 0; step < steps; ++step) {
      const bool loses_memory = step == steps / 2 && (how == "unmap" || how == "free");
      if (loses_memory && !is_mine)
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is under way then
      if (is_mine && when == "call" && step == steps / 2) come_to_ruin(how, &world);
      if (!loses_memory || !is_mine) world.all_reduce(numbers, lockstep::max);
    }
  });
  say("done");
  if (is_mine && when == "shutdown") come_to_ruin(how);
}

int ended(int code, const std::string& words) {
  say(text("ended at ", now_us(), ": ", words));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return ended(0, "well");
  } catch (const lockstep::Error& error) {
    return ended(static_cast<int>(exit_of(error.code())), error.what());
  } catch (const std::exception& error) {
    return ended(1, error.what());
  }
}
