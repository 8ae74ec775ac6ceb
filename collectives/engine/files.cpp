// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Of what may be printed only two letters mean something in JSON.
std::string json_text(std::string_view words) {
  std::string all = "\"";
  for (const char letter : printable(words, words.size())) {
    if (letter == '"' || letter == '\\') all += '\\';
    all += letter;
  }
  return all += '"';
}

std::string own_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? printable(name.data()) : "unknown";
}

std::string own_program() { return printable(program_invocation_short_name); }

std::string file_part(std::string host) {
  std::ranges::replace(host, '/', '-');
  return host;
}

void make_folder(const std::string& folder, std::string_view setting) {
  const std::string shown = printable(folder, folder.size());
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw system_error(text("making the folder ", shown), errno,
                       text("let ", setting, " name a folder in one that is there"));
  struct stat what {};
  const bool is_there = ::stat(folder.c_str(), &what) == 0;
  const bool is_folder = is_there && S_ISDIR(what.st_mode);
  if (is_folder && ::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw system_error(text("writing to the folder ", shown), is_there && !is_folder ? ENOTDIR : errno,
                     text("let ", setting, " name a folder that can be written to"));
}

void write_whole_file(const std::string& path, const std::string& words, std::string_view setting) {
  const std::string before = text(path, '.', ::getpid());
  ::unlink(before.c_str());  // of an earlier process of this number
  const int file = ::open(before.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  int error = file < 0 ? errno : 0;
  for (std::size_t written = 0; error == 0 && written < words.size();) {
    const ssize_t moved = ::write(file, words.data() + written, words.size() - written);
    if (moved > 0)
      written += static_cast<std::size_t>(moved);
    else if (moved == 0 || errno != EINTR)
      error = moved == 0 ? EIO : errno;
  }
  if (file >= 0) ::close(file);
  if (error == 0 && ::rename(before.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(before.c_str());
  throw system_error(text("writing ", printable(path, path.size())), error,
                     text("let ", setting, " name a folder that can be written to"));
}

}  // namespace lockstep
