// SPDX-License-Identifier: Apache-2.0
#include "tools/lockstep/write_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

[[noreturn]] void refuse(const std::string& path, int reason) {
  throw Error(Code::file, text(printable(path, 200), " cannot be written: ", std::generic_category().message(reason)),
              "give a path in a directory that you may write to, on a disk with room");
}

// 0, or the errno of what failed.
int write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_and_close(int file, std::string_view content) {
  const int failed = write_all(file, content);
  const int closed = ::close(file) == 0 ? 0 : errno;
  return failed != 0 ? failed : closed;
}

// A new file with the permissions of the one that it will replace, or of an ordinary new file.
int create(std::string& name, const std::filesystem::path& target) {
  const int file = ::mkstemp(name.data());
  if (file < 0) return file;
  struct stat before {};
  if (::stat(target.c_str(), &before) == 0) {
    static_cast<void>(::fchown(file, before.st_uid, before.st_gid));
    ::fchmod(file, before.st_mode & 07777);
  } else {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(file, 0666 & ~mask);
  }
  return file;
}

// Pipes and devices cannot be replaced. A pipe that nobody reads would make us wait for ever.
void write_in_place(const std::string& path, std::string_view content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && errno == ENXIO)
    throw Error(Code::file, text("nobody reads the pipe ", printable(path, 200)), "start its reader first");
  if (file < 0) refuse(path, errno);
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  if (const int failed = write_and_close(file, content); failed != 0) refuse(path, failed);
}

// A link stays a link: what it points to is written.
std::filesystem::path target_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
  auto target = std::filesystem::canonical(path, error);
  if (error) refuse(path, error.value());
  return target;
}

}  // namespace

void write_file(const std::string& path, std::string_view content) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return write_in_place(path, content);
  const std::filesystem::path target = target_of(path);
  std::string name = target.parent_path() / ".lockstep-XXXXXX";
  const int file = create(name, target);
  if (file < 0) refuse(path, errno);
  int failed = write_and_close(file, content);
  if (failed == 0 && std::rename(name.c_str(), target.c_str()) != 0) failed = errno;
  if (failed == 0) return;
  ::unlink(name.c_str());
  refuse(path, failed);
}

void refuse_unwritable(std::string_view option, const std::string& path) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(path).parent_path();
  const bool there = std::filesystem::exists(path, ignored);
  const bool directory = std::filesystem::is_directory(path, ignored);
  const std::string place = there ? path : folder.empty() ? "." : folder.string();
  if (!directory && ::access(place.c_str(), W_OK) == 0) return;
  const std::string reason = directory ? "it is a folder" : std::generic_category().message(errno);
  throw Error(Code::file, text(option, ' ', printable(path, 200), " cannot be written: ", reason),
              "give a file in a folder that is there and that you may write to");
}

}  // namespace lockstep::command
