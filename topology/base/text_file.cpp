// SPDX-License-Identifier: Apache-2.0
// Reads and replaces text files without waiting for pipes, leases or devices.
#include "topology/base/text_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Returns 0, or the errno of the failed step.
int write_and_close(int file, std::string_view content) {
  int error = 0;
  while (error == 0 && !content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written > 0)
      content.remove_prefix(static_cast<std::size_t>(written));
    else if (written == 0 || errno != EINTR)
      error = written == 0 ? EIO : errno;
  }
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

// Checks the limit first: a write past it would end the program by a signal.
bool may_have_size(std::size_t bytes) {
  rlimit longest{};
  return ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur >= bytes;
}

[[noreturn]] void refuse_irregular(const std::string& shown) {
  throw Error(Code::file, text(shown, " is not a regular file"), "give the path of a regular file");
}

}  // namespace

// The owner of the path may hold a lease on the file, or put a pipe there at any time. A device is not even opened.
OwnedDescriptor open_regular_file(const std::string& path, const std::string& shown) {
  struct stat its {};
  if (::stat(path.c_str(), &its) == 0 && !S_ISREG(its.st_mode)) refuse_irregular(shown);
  OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file)
    throw Error(
        Code::file,
        text(shown, " cannot be read: ",
             errno == EWOULDBLOCK ? "another process holds a lease on it" : std::generic_category().message(errno)),
        "give the path of a file that all members can read");
  if (::fstat(file.get(), &its) == 0 && S_ISREG(its.st_mode)) return file;
  refuse_irregular(shown);
}

std::string read_text_file(const std::string& path, std::size_t most, std::string_view named_by) {
  const std::string shown =
      named_by.empty() ? text('"', printable(path, 200), '"') : text(named_by, '=', printable(path, 200));
  const OwnedDescriptor file = open_regular_file(path, shown);
  std::string all;
  std::array<char, 65536> part{};
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got == 0) return all;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error(Code::file, text(shown, " cannot be read: ", std::generic_category().message(errno)),
                  "check the disk");
    all.append(part.data(), static_cast<std::size_t>(got));
    if (all.size() > most)
      throw Error(Code::file, text(shown, " has more than ", format_bytes(most)), "give a smaller file");
  }
}

int replace_file(const std::string& path, std::string_view content) noexcept try {
  if (!may_have_size(content.size())) return EFBIG;
  std::string draft = text(path, ".XXXXXX");
  const int file = ::mkostemp(draft.data(), O_CLOEXEC);  // with O_EXCL, and for this user alone
  if (file < 0) return errno;
  int error = write_and_close(file, content);
  if (error == 0 && ::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(draft.c_str());
  return error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

}  // namespace lockstep
