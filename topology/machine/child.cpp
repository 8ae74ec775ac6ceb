// SPDX-License-Identifier: Apache-2.0
// Runs work in a forked child with limits on time and memory, and reads its answer from a pipe.
#include "topology/machine/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr auto time_limit = std::chrono::seconds(10);  // of wall-clock time; a guess

// Writes to the parent. The child ends if that fails, since nobody reads any more.
void write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// Limits the child's memory and processor time, because hwloc may loop or ask for any amount of memory.
void limit_self() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  constexpr std::uint64_t more = 2ULL << 30;  // bytes of address space beyond the present ones; a guess
  const std::uint64_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + more;
  rlimit memory{};
  getrlimit(RLIMIT_AS, &memory);
  memory.rlim_cur = std::min<rlim_t>(memory.rlim_cur, bytes);
  setrlimit(RLIMIT_AS, &memory);
  const rlimit processor{time_limit.count() + 1, time_limit.count() + 2};
  setrlimit(RLIMIT_CPU, &processor);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

// Begins the child's answer: its result, an Error, or another exception.
enum class ChildResult : std::uint8_t { good, refused, broken };

Bytes answer_of(ChildResult kind, Writer rest) {
  Bytes bytes = Writer().put(kind).take();
  const Bytes more = rest.take();
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

// Runs the work. Its exceptions become bytes, because they cannot leave the process.
Bytes try_work(const std::function<Bytes()>& work) {
  try {
    return answer_of(ChildResult::good, std::move(Writer().put(std::span<const std::byte>(work()))));
  } catch (const Error& error) {
    return answer_of(ChildResult::refused, std::move(Writer().put(error.code()).put(error.detail())));
  } catch (const std::exception& error) {
    return answer_of(ChildResult::broken, std::move(Writer().put(std::string_view(error.what()))));
  }
}

// Is the life of the child. It has the program's signal handlers reset, so that a crash ends it as a crash.
[[noreturn]] void be_child(pid_t parent, int out, const std::function<Bytes()>& work) {
  // Ends the child if the caller ends for any reason.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(1);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM}) signal(number, SIG_DFL);
  limit_self();
  write_all(out, try_work(work));
  _exit(0);
}

// Reads until the child closes the pipe. Returns false if that takes too long.
bool read_answer(int in, Bytes& answer) {
  const auto end = std::chrono::steady_clock::now() + time_limit;
  std::array<std::byte, 65536> buffer;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waiting{in, POLLIN, 0};
    if (left.count() <= 0) return false;
    if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t got = ::read(in, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    answer.insert(answer.end(), buffer.begin(), buffer.begin() + got);
  }
}

// Returns the status by which the child ended.
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

// The program may have threads, so the child allocates and calls libraries at its own risk; a hang there ends at the
// limit.
Bytes run_in_child(std::string_view what, Code code, const std::function<Bytes()>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error(text(what, ": no pipe"), errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    throw system_error(text(what, ": no child process"), error, "raise the limits of processes and memory (ulimit -a)");
  }
  if (child == 0) {
    ::close(ends[0]);
    be_child(parent, ends[1], work);
  }
  ::close(ends[1]);
  Bytes answer;
  const bool in_time = read_answer(ends[0], answer);
  ::close(ends[0]);
  if (!in_time) ::kill(child, SIGKILL);
  const int status = wait_for(child);
  if (!in_time) {
    throw Error(code, text(what, " took more than ", format_duration(time_limit)),
                "give many cores a level above them, as \"package:64 core:1024 pu:1\", or describe a smaller machine");
  }
  if (WIFSIGNALED(status)) {
    throw Error(code, text(what, " crashed (signal ", WTERMSIG(status), ", ", ::strsignal(WTERMSIG(status)), ")"),
                "the input makes the library that reads it crash; do not trust it");
  }
  if (answer.empty()) throw Error(code, text(what, " ended without an answer"));
  Reader reader(answer);
  switch (reader.get_enum(ChildResult::broken)) {
    case ChildResult::good:
      return reader.get_bytes();
    case ChildResult::refused: {
      const auto its_code = reader.get<Code>();
      throw Error(its_code, reader.get_string());
    }
    case ChildResult::broken:
      break;
  }
  throw Error(code, text(what, ": ", reader.get_string()));
}

}  // namespace lockstep
