// SPDX-License-Identifier: Apache-2.0
// Reads /proc without ever blocking on a file of another user.
#include "topology/base/proc.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Returns the names in `folder` that are numbers, or nothing and errno if the folder cannot be opened.
std::optional<std::vector<int>> numbers_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return std::nullopt;
  std::vector<int> all;
  while (const dirent* const entry = ::readdir(entries.get())) {
    if (const auto number = parse_integer(static_cast<const char*>(entry->d_name)))
      all.push_back(static_cast<int>(*number));
  }
  return all;
}

// Returns the device on which the kernel keeps all memory files, and nothing else that a user could open.
std::optional<dev_t> device_of_memory_files() {
  const int file = ::memfd_create("lockstep", MFD_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct stat its {};
  const bool is_known = ::fstat(file, &its) == 0;
  ::close(file);
  return is_known ? std::optional(its.st_dev) : std::nullopt;
}

// Asks with AT_STATX_DONT_SYNC, because a file system of another user (FUSE) may never answer.
bool is_memory_file(int descriptor) {
  struct statx its {};
  if (::statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &its) != 0) return false;
  return S_ISREG(its.stx_mode) && makedev(its.stx_dev_major, its.stx_dev_minor) == device_of_memory_files();
}

std::string target_of(const std::string& link) {
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  return {target.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace

std::string read_proc(const std::string& path, std::size_t most) {
  std::string all(most, '\0');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::size_t length = 0;
  while (file >= 0 && length < most) {
    const ssize_t came = ::read(file, all.data() + length, most - length);
    if (came <= 0) break;
    length += static_cast<std::size_t>(came);
  }
  if (file >= 0) ::close(file);
  all.resize(length);
  return all;
}

std::vector<std::string> fields_of_process(std::int64_t number) {
  const std::string all = read_proc(text("/proc/", number, "/stat"));
  const std::size_t end = all.rfind(')');
  if (end == std::string::npos) return {};
  return split(trim(std::string_view(all).substr(end + 1)), ' ');
}

// Reads all three ids. The owner of /proc/PID is the effective one alone. It is also that of a set-user-id program that
// another user has started, with descriptors of that user's choice.
bool is_of_this_user(int process) {
  constexpr std::string_view line = "\nUid:\t";
  const std::string all = read_proc(text("/proc/", process, "/status"));
  const std::size_t begin = all.find(line);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(all).substr(begin + line.size());
  const std::vector<std::string> ids = split(rest.substr(0, rest.find('\n')), '\t');
  return std::ranges::all_of(ids, [mine = text(::geteuid())](const std::string& id) { return id == mine; });
}

void visit_processes_of_this_user(const std::function<bool(int process)>& visit) {
  std::vector<int> all = numbers_in("/proc").value_or(std::vector<int>{});
  std::ranges::sort(all);
  for (const int process : all) {
    if (is_of_this_user(process) && visit(process)) return;
  }
}

// Opens with O_PATH first. That asks neither the file nor its file system, and holds the file while it is judged.
int open_memory_file(const std::string& path, int flags) {
  const int found = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (found < 0) return -1;
  const bool is_one = is_memory_file(found);
  const int file = is_one ? ::open(text("/proc/self/fd/", found).c_str(), flags | O_NONBLOCK | O_CLOEXEC) : -1;
  const int error = is_one ? errno : 0;
  ::close(found);
  errno = error;
  return file;
}

MemoryFile find_memory_file(int process, std::string_view prefix) {
  constexpr std::string_view before = "/memfd:";
  constexpr std::string_view behind = " (deleted)";
  const std::string folder = text("/proc/", process, "/fd");
  const auto numbers = numbers_in(folder);
  MemoryFile found{.error = numbers ? 0 : errno};
  for (const int number : numbers.value_or(std::vector<int>{})) {
    const std::string link = text(folder, '/', number);
    const std::string target = target_of(link);
    std::string_view name = target;
    if (!name.starts_with(before) || !name.substr(before.size()).starts_with(prefix)) continue;
    name.remove_prefix(before.size());
    if (name.ends_with(behind)) name.remove_suffix(behind.size());
    found.descriptor = open_memory_file(link, O_RDONLY);
    found.name = name;
    if (found.descriptor >= 0) return {found.descriptor, std::move(found.name)};
    found.error = errno;
  }
  return {.error = found.error};
}

}  // namespace lockstep
