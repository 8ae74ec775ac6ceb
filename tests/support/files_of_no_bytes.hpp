// SPDX-License-Identifier: Apache-2.0
// Makes each write to a file fail, as on a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace lockstep::test {

// Lets no file of this process grow, nor the memory that it would share.
class FilesOfNoBytes {
 public:
  FilesOfNoBytes() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  FilesOfNoBytes(const FilesOfNoBytes&) = delete;
  FilesOfNoBytes& operator=(const FilesOfNoBytes&) = delete;
  ~FilesOfNoBytes() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before_{};
};

}  // namespace lockstep::test
