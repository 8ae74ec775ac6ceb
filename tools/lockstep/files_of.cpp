// SPDX-License-Identifier: Apache-2.0
// Lists files of a folder with care for links of other users, and reads each of them.
#include "tools/lockstep/files_of.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "tools/lockstep/options.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

void say_passed_over(std::string_view fault) {
  if (speaks()) std::cerr << text("lockstep: passed over: ", fault, "\n") << std::flush;
}

// Returns true for a link that another user owns. It may lead to a file that only this user may read, or that changes
// when it is read (/proc/kmsg).
bool is_link_of_another_user(const std::filesystem::path& path) {
  struct stat its {};
  return ::lstat(path.c_str(), &its) == 0 && S_ISLNK(its.st_mode) && its.st_uid != ::geteuid();
}

std::vector<std::string> files_in(const std::string& folder, std::string_view end, std::string_view setting) {
  std::vector<std::string> all;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end_of_all; !error && each != end_of_all;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (!name.starts_with("lockstep-") || !name.ends_with(end)) continue;
    if (is_link_of_another_user(each->path()))
      say_passed_over(text('"', printable(each->path().string(), 200), "\" is a link of another user"));
    else
      all.push_back(each->path().string());
  }
  if (error)
    throw Error(Code::usage, text(printable(folder, folder.size()), ": ", error.message()),
                text("name the folder that ", setting, " was given"));
  std::ranges::sort(all);
  if (all.empty())
    throw Error(Code::usage, text("no file was found in ", printable(folder, folder.size())),
                text("name the folder that ", setting, " was given"));
  return all;
}

// Returns the fault without its remedy. For one file of a folder the remedy is to continue without it.
std::string fault_of(const Error& error) {
  const std::string_view all = error.detail();
  return std::string(all.substr(0, all.rfind(" -> ")));
}

}  // namespace

std::vector<std::string> files_of(const std::vector<std::string>& words, std::string_view end,
                                  std::string_view setting) {
  if (words.empty()) throw Error(Code::usage, "no folder is named", text("name the one that ", setting, " was given"));
  std::vector<std::string> all;
  for (const std::string& word : words) {
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(word, error);
    if (error)
      throw Error(Code::usage, text('"', printable(word, word.size()), "\": ", error.message()),
                  text("name the folder that ", setting, " was given"));
    const auto files = is_folder ? files_in(word, end, setting) : std::vector<std::string>{word};
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

void read_each(const std::vector<std::string>& files, std::string_view setting,
               const std::function<void(const std::string& path)>& read) {
  std::vector<std::string> faults;
  for (const std::string& path : files) {
    try {
      read(path);
    } catch (const Error& error) {
      if (error.code() != Code::file) throw;
      faults.push_back(fault_of(error));
    }
  }
  if (faults.size() == files.size())
    throw Error(Code::file, text(files.size() > 1 ? "no file can be read, such as " : "", faults.front()),
                text("name the folder that ", setting, " was given"));
  for (const std::string& fault : faults) say_passed_over(fault);
}

}  // namespace lockstep::command
