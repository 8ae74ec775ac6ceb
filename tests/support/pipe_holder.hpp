// SPDX-License-Identifier: Apache-2.0
// A process that holds a pipe which /proc shows as a memory file: a trap for readers, since opening it waits for a
// writer.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/folder.hpp"
#include "tests/support/own_mounts.hpp"

namespace lockstep::test {

class PipeHolder {
 public:
  static constexpr int patience_ms = 20'000;  // then it lets go of a reader that waits; a busy machine takes seconds

  // `user`: the user that it becomes; none: this one.
  PipeHolder(std::string_view name, std::optional<uid_t> user) {
    std::array<int, 2> says{};
    std::array<int, 2> hears{};
    if (::pipe(says.data()) != 0 || ::pipe(hears.data()) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      for (int each = STDERR_FILENO + 1; each < 1024; ++each) {  // such as true memory files of that name
        if (each != says[1] && each != hears[0]) ::close(each);
      }
      hold(name, user, says[1], hears[0]);
      ::_exit(0);
    }
    ::close(hears[0]);
    ::close(says[1]);
    may_end_ = hears[1];
    char word = 0;
    is_ready_ = ::read(says[0], &word, 1) == 1;
    ::close(says[0]);
  }
  ~PipeHolder() {
    ::close(may_end_);
    ::waitpid(process_, nullptr, 0);
  }
  PipeHolder(const PipeHolder&) = delete;
  PipeHolder& operator=(const PipeHolder&) = delete;

  // False: the system does not let it make its trap.
  bool is_ready() const { return is_ready_; }
  int process() const { return process_; }

 private:
  // A name in /proc begins at the root of the file system, if that is mounted nowhere any more.
  void hold(std::string_view name, std::optional<uid_t> user, int says, int hears) const {
    const std::string folder = folder_.path();
    const std::string path = text(folder, "/memfd:", name);
    if (!enter_own_mounts() || ::mount("none", folder.c_str(), "tmpfs", 0, nullptr) != 0) return;
    if (::mkfifo(path.c_str(), 0666) != 0 || ::chmod(path.c_str(), 0666) != 0) return;
    const int pipe = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (pipe < 0 || ::umount2(folder.c_str(), MNT_DETACH) != 0) return;
    if (user && (::setgroups(0, nullptr) != 0 || ::setuid(*user) != 0)) return;
    if (::write(says, "r", 1) != 1) return;
    pollfd end{hears, POLLIN, 0};
    if (::poll(&end, 1, patience_ms) == 0) ::open(text("/proc/self/fd/", pipe).c_str(), O_RDWR | O_NONBLOCK);
    ::poll(&end, 1, -1);
  }

  Folder folder_;
  pid_t process_ = 0;
  int may_end_ = -1;
  bool is_ready_ = false;
};

}  // namespace lockstep::test
