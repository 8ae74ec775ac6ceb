// SPDX-License-Identifier: Apache-2.0
#include "tools/lockstep/files_of.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

std::vector<std::string> files_in(const std::string& folder, std::string_view end, std::string_view setting) {
  std::vector<std::string> all;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end_of_all; !error && each != end_of_all;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (name.starts_with("lockstep-") && name.ends_with(end)) all.push_back(each->path().string());
  }
  if (error)
    throw Error(Code::usage, text(printable(folder, folder.size()), ": ", error.message()),
                text("name the folder that ", setting, " was given"));
  std::ranges::sort(all);
  if (all.empty())
    throw Error(Code::usage, text("nothing was left in ", printable(folder, folder.size())),
                text("name the folder that ", setting, " was given"));
  return all;
}

}  // namespace

std::vector<std::string> files_of(const std::vector<std::string>& words, std::string_view end,
                                  std::string_view setting) {
  if (words.empty()) throw Error(Code::usage, "no folder is named", text("name the one that ", setting, " was given"));
  std::vector<std::string> all;
  for (const std::string& word : words) {
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(word, error);
    const auto files = is_folder ? files_in(word, end, setting) : std::vector<std::string>{word};
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

}  // namespace lockstep::command
