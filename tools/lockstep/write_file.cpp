// SPDX-License-Identifier: Apache-2.0
// Writes files safely, also in folders where other users can place links.
#include "tools/lockstep/write_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

[[noreturn]] void refuse(const std::string& path, int reason) {
  throw Error(Code::file, text(printable(path, 200), " cannot be written: ", std::generic_category().message(reason)),
              "give a path in a directory that you may write to, on a disk with room");
}

// Returns 0, or the errno of the failure.
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

// Creates a file with the permissions of the one that it will replace, or of an ordinary new file.
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

// Writes to pipes and devices, which cannot be replaced. It does not wait for the reader of a pipe, which might never
// come.
void write_in_place(const std::string& path, std::string_view content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && errno == ENXIO)
    throw Error(Code::file, text("no process reads the pipe ", printable(path, 200)), "start its reader first");
  if (file < 0) refuse(path, errno);
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  if (const int failed = write_and_close(file, content); failed != 0) refuse(path, failed);
}

constexpr std::string_view foreign_link = "a link that another user has put into a folder open to all";

// Returns true for a link of another user in a folder where any user may make one, because it may lead to any file of
// this user.
bool is_foreign_link(const std::filesystem::path& path) {
  struct stat its {};
  struct stat around {};
  if (::lstat(path.c_str(), &its) != 0 || !S_ISLNK(its.st_mode) || its.st_uid == ::geteuid()) return false;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const bool is_open_to_all = ::stat(folder.c_str(), &around) == 0 && (around.st_mode & (S_ISVTX | S_IWOTH)) != 0;
  return is_open_to_all && its.st_uid != around.st_uid;
}

// Owns a temporary file beside the target. A link stays a link; its target is replaced.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path) : target_(path) {
    constexpr std::size_t longest = 255;
    std::error_code ignored;
    std::error_code error;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored)))
      target_ = std::filesystem::canonical(path, error);
    reason_ = error ? error.value() : target_.filename().string().size() > longest ? ENAMETOOLONG : 0;
    if (reason_ != 0) return;
    name_ = target_.parent_path() / ".lockstep-XXXXXX";
    file_ = create(name_, target_);
    reason_ = file_ < 0 ? errno : 0;
  }
  ~FileBeside() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(name_.c_str());
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  // Returns the errno of the failure.
  int reason() const { return reason_; }
  void put(std::string_view content) {
    if (reason_ != 0) return;
    reason_ = write_and_close(std::exchange(file_, -1), content);
    if (reason_ == 0 && std::rename(name_.c_str(), target_.c_str()) != 0) reason_ = errno;
    if (reason_ != 0) ::unlink(name_.c_str());
  }

 private:
  std::filesystem::path target_;
  std::string name_;
  int file_ = -1;
  int reason_ = 0;
};

// Returns the open descriptor that the path names, or -1.
int descriptor_named(std::string_view path) {
  if (path == "-" || path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const auto number = parse_integer(path.substr(folder.size()));
    if (number && *number >= 0 && *number < 1 << 20) return static_cast<int>(*number);
  }
  return -1;
}

// Returns 0 if an open descriptor may be written to: a file, pipe or terminal, but no socket of a launcher. Otherwise
// it returns an errno.
int reason_against(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  struct stat its {};
  if (flags < 0 || ::fstat(descriptor, &its) != 0) return errno;
  if ((flags & O_ACCMODE) == O_RDONLY) return EBADF;
  return S_ISSOCK(its.st_mode) ? ENXIO : 0;
}

// Returns the errno if this user may not replace the file: it is protected, or belongs to another user in a folder like
// /tmp. Otherwise it returns 0.
int reason_against(const std::string& path) {
  struct stat its {};
  if (::stat(path.c_str(), &its) != 0) return 0;
  if (::access(path.c_str(), W_OK) != 0) return errno;
  std::error_code ignored;
  const auto folder = std::filesystem::canonical(path, ignored).parent_path();
  struct stat around {};
  const bool is_sticky = ::stat(folder.c_str(), &around) == 0 && (around.st_mode & S_ISVTX) != 0;
  const uid_t me = ::geteuid();
  return is_sticky && me != its.st_uid && me != around.st_uid && its.st_uid != around.st_uid ? EPERM : 0;
}

}  // namespace

bool is_replaced(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return descriptor_named(path) < 0 && (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status));
}

void write_file(const std::string& path, std::string_view content) {
  if (const int open = descriptor_named(path); open >= 0) {
    std::cout.flush();
    const int unfit = reason_against(open);
    if (const int failed = unfit != 0 ? unfit : write_all(open, content); failed != 0) refuse(path, failed);
    return;
  }
  if (is_foreign_link(path))
    throw Error(Code::file, text(printable(path, 200), " is ", foreign_link), "give a path in a folder of your own");
  if (!is_replaced(path)) return write_in_place(path, content);
  FileBeside file(path);
  file.put(content);
  if (file.reason() != 0) refuse(path, file.reason());
}

void refuse_unwritable(std::string_view option, const std::string& path) {
  std::error_code ignored;
  const auto why = [&]() -> std::string {
    if (path.empty()) return "it has no name";
    if (std::filesystem::is_directory(path, ignored)) return "it is a folder";
    const auto words = [](int number) { return number == 0 ? "" : std::generic_category().message(number); };
    if (const int open = descriptor_named(path); open >= 0) return words(reason_against(open));
    if (is_foreign_link(path)) return text("it is ", foreign_link);
    if (!is_replaced(path)) return words(::access(path.c_str(), W_OK) == 0 ? 0 : errno);
    const int unfit = reason_against(path);
    return words(unfit != 0 ? unfit : FileBeside(path).reason());
  };
  const std::string reason = why();
  if (reason.empty()) return;
  throw Error(Code::file, text(option, ' ', printable(path, 200), " cannot be written: ", reason),
              "give a file in an existing folder that you may write to");
}

}  // namespace lockstep::command
