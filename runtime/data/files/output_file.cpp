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
#include "runtime/data/random.hpp"

namespace lockstep::data {

// A draw names the draft, since processes in two containers may have the same number.
OutputFile::OutputFile(std::string path) : path_(std::move(path)), draft_(text(path_, ".part.", fresh_seed())) {
  constexpr mode_t all_may_read = 0666;  // less the process's mask
  file_ = OwnedDescriptor(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, all_may_read));
  if (!file_) refuse(errno);
}

OutputFile::~OutputFile() {
  if (file_) ::unlink(draft_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  while (failure_ == 0 && !bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written > 0)
      bytes.remove_prefix(static_cast<std::size_t>(written));
    else if (written == 0 || errno != EINTR)
      failure_ = written == 0 ? EIO : errno;
  }
  if (failure_ != 0) refuse(failure_);
}

void OutputFile::close() {
  if (failure_ == 0 &&
      (::fsync(file_.get()) != 0 || ::close(file_.take()) != 0 || ::rename(draft_.c_str(), path_.c_str()) != 0))
    failure_ = errno;
  if (failure_ == 0) return;
  ::unlink(draft_.c_str());
  refuse(failure_);
}

void OutputFile::refuse(int error) const {
  throw Error(Code::file, text(place_of(path_), " cannot be written: ", std::generic_category().message(error)),
              "check the folder, its rights, and the space on the disk");
}

}  // namespace lockstep::data
