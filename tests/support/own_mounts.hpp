// SPDX-License-Identifier: Apache-2.0
// A mount namespace of a test's own: for root, and for other users where user namespaces are allowed.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "topology/base/text.hpp"

namespace lockstep::test {

inline bool write_to(const char* path, const std::string& words) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool is_written = file >= 0 && ::write(file, words.data(), words.size()) > 0;
  if (file >= 0) ::close(file);
  return is_written;
}

// Moves this process, which must have one thread, into a mount namespace of its own. False if the system forbids it.
inline bool enter_own_mounts() {
  const std::string user = text(::geteuid(), ' ', ::geteuid(), " 1");
  const std::string group = text(::getegid(), ' ', ::getegid(), " 1");
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!write_to("/proc/self/setgroups", "deny") || !write_to("/proc/self/uid_map", user) ||
        !write_to("/proc/self/gid_map", group))
      return false;
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

inline constexpr const char* mount_right = "the right to make a mount namespace (root, or user namespaces)";

}  // namespace lockstep::test
