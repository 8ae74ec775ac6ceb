// SPDX-License-Identifier: Apache-2.0
// Who has yet to have its say before the job may be ended: the launcher kills all as soon as one leaves.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep::test {

// Each rank holds a lock on its own byte of one file, from sign_on() until sign_off() or its death: the kernel takes
// the locks of the dead away. The file is one among the ranks that share a folder for temporary files.
class Roll {
 public:
  // Empty where no file can be made. It may be removed as soon as all have signed on.
  static std::string make_file() {
    std::error_code none;
    std::string path = (std::filesystem::temp_directory_path(none) / "lockstep-roll-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    if (file < 0) return {};
    ::close(file);
    return path;
  }

  bool sign_on(const std::string& path, int rank) {
    file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    byte_ = rank;
    struct flock mine = lock_on(F_WRLCK, rank, 1);
    return file_ >= 0 && ::fcntl(file_, F_SETLK, &mine) == 0;
  }

  void sign_off() const {
    struct flock mine = lock_on(F_UNLCK, byte_, 1);
    if (file_ >= 0) ::fcntl(file_, F_SETLK, &mine);
  }

  bool others_are_on() const {
    struct flock any = lock_on(F_WRLCK, 0, 0);  // to the end of all files
    return file_ >= 0 && ::fcntl(file_, F_GETLK, &any) == 0 && any.l_type != F_UNLCK;
  }

 private:
  static struct flock lock_on(short type, off_t begin, off_t length) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = begin;
    lock.l_len = length;
    return lock;
  }

  int file_ = -1;  // open until the process ends: to close it is to lose the lock
  int byte_ = 0;
};

}  // namespace lockstep::test
