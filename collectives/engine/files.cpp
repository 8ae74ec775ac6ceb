// SPDX-License-Identifier: Apache-2.0
// Writes files as a whole, and checks the folders that they go to.
#include "collectives/engine/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep {

// Only two printable characters have a meaning in a JSON string, the quote and the backslash.
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
                       text("set ", setting, " to a folder inside an existing one"));
  struct stat what {};
  const bool is_there = ::stat(folder.c_str(), &what) == 0;
  const bool is_folder = is_there && S_ISDIR(what.st_mode);
  // Refuses a folder of another user that all may write to: that user could replace the files left there.
  if (is_folder && what.st_uid != ::geteuid() && what.st_uid != 0 && (what.st_mode & S_IWOTH) != 0)
    throw system_error(
        text("writing to the folder ", shown, ", which belongs to another user and is open to everybody"), EPERM,
        text("set ", setting, " to a folder of your own, of your group, or of root"));
  if (is_folder && ::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw system_error(text("writing to the folder ", shown), is_there && !is_folder ? ENOTDIR : errno,
                     text("set ", setting, " to a folder that you may write to"));
}

void write_whole_file(const std::string& path, const std::string& words, std::string_view setting) {
  if (const int error = replace_file(path, words); error != 0)
    throw system_error(text("writing ", printable(path, path.size())), error,
                       text("set ", setting, " to a folder that you may write to"));
}

}  // namespace lockstep
