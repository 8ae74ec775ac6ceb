// SPDX-License-Identifier: Apache-2.0
// Expands patterns, and names files in messages.
#include "runtime/data/files/files.hpp"

#include <glob.h>
#include <unistd.h>

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t most_letters_shown = 200;

std::vector<std::string> paths_of(const std::string& pattern) {
  const bool is_path = pattern.find_first_of("*?[") == std::string::npos || ::access(pattern.c_str(), F_OK) == 0;
  return is_path ? std::vector{pattern} : glob(pattern);
}

void require_paths(const std::vector<std::string>& paths) {
  if (paths.empty()) throw Error(Code::usage, "a source of no files", "give one path at least");
}

}  // namespace

std::vector<std::string> glob(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_MARK, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, ::globfree);
  if (status == GLOB_NOSPACE) throw Error(Code::out_of_memory, text("glob(", place_of(pattern), ')'));
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  std::erase_if(paths, [](const std::string& path) { return path.ends_with('/'); });
  if (paths.empty())
    throw Error(Code::file, text("no file matches ", place_of(pattern)),
                "check the pattern, the current folder, and the right to read the folders in it");
  std::ranges::sort(paths);
  return paths;
}

Files::Files(const std::string& pattern) : paths_(paths_of(pattern)) {}
Files::Files(const char* pattern) : Files(std::string(pattern)) {}
Files::Files(std::vector<std::string> paths) : paths_(std::move(paths)) { require_paths(paths_); }
Files::Files(std::initializer_list<std::string_view> paths)
    : Files(std::vector<std::string>(paths.begin(), paths.end())) {}

std::string place_of(const std::string& path) { return text('"', printable(path, most_letters_shown), '"'); }

std::string place_of(const std::string& path, std::uint64_t byte) { return text(place_of(path), ", byte ", byte); }

std::string describe_source(std::string_view source, const std::vector<std::string>& paths, std::string_view more) {
  std::string files = "no files";
  if (!paths.empty()) {
    const std::string& first = paths.front();
    files = place_of(first.substr(first.rfind('/') + 1));
  }
  if (paths.size() > 1) files += text(" and ", paths.size() - 1, paths.size() == 2 ? " more file" : " more files");
  return text(source, '(', files, more.empty() ? "" : ", ", more, ')');
}

void ListFilesStage::gather(std::span<const std::int64_t> numbers, C& out) const {
  for (const std::int64_t number : numbers) std::get<0>(out).append_row(files()[static_cast<std::size_t>(number)]);
}

}  // namespace lockstep::data
