// SPDX-License-Identifier: Apache-2.0
// Writes a draft, and renames it.
#include "runtime/data/files/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "runtime/data/files/files.hpp"

namespace lockstep::data {

OutputFile::OutputFile(std::string path) : path_(std::move(path)), draft_(text(path_, ".part.", ::getpid())) {
  constexpr mode_t all_may_read = 0666;  // less the process's mask
  file_ = OwnedDescriptor(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, all_may_read));
  if (!file_) refuse(errno);
}

OutputFile::~OutputFile() {
  if (file_) ::unlink(draft_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written > 0)
      bytes.remove_prefix(static_cast<std::size_t>(written));
    else if (written == 0 || errno != EINTR)
      refuse(written == 0 ? EIO : errno);
  }
}

void OutputFile::close() {
  const int error = ::close(file_.take()) != 0 || ::rename(draft_.c_str(), path_.c_str()) != 0 ? errno : 0;
  if (error == 0) return;
  ::unlink(draft_.c_str());
  refuse(error);
}

void OutputFile::refuse(int error) const {
  throw Error(Code::file, text(place_of(path_), " cannot be written: ", std::generic_category().message(error)),
              "check the folder, its rights, and the space on the disk");
}

}  // namespace lockstep::data
