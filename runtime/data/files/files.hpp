// SPDX-License-Identifier: Apache-2.0
// Names the files of a source, and defines the base of all sources that read files.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace lockstep::data {

// Returns the files that match a pattern with *, ? or [letters], sorted by their bytes. Throws Error file for none.
std::vector<std::string> glob(const std::string& pattern);

// Names the files of a source: one path, the files that match one pattern, or a list of paths. A pattern is a text with
// *, ? or [ that is no file's path. Throws Error for no files.
class Files {
 public:
  Files(const std::string& pattern);      // NOLINT(google-explicit-constructor): sources take paths
  Files(const char* pattern);             // NOLINT(google-explicit-constructor)
  Files(std::vector<std::string> paths);  // NOLINT(google-explicit-constructor)
  Files(std::initializer_list<std::string_view> paths);
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
};

// Return how messages name a file, and a place in it.
std::string place_of(const std::string& path);
std::string place_of(const std::string& path, std::uint64_t byte);

// Returns "from_lines("a.txt" and 2 more files)", with `more` before the bracket's end. It names no folders, so
// positions fit the same files in another folder.
std::string describe_source(std::string_view source, const std::vector<std::string>& paths, std::string_view more = {});

// Is a source that reads files in order.
template <class C>
class FileStage : public Stage<C> {
 public:
  explicit FileStage(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  const std::vector<std::string>& files() const { return paths_; }
  // Returns the same source over other files. A source of no files has no rows.
  virtual SharedStage<C> with_files(std::vector<std::string> paths) const = 0;
  std::int64_t file_count() const override { return static_cast<std::int64_t>(paths_.size()); }
  // Gives each shard every so many-th file.
  SharedStage<C> with_input(const InputPart& part) const override {
    if (!part.is_by_files) return nullptr;
    std::vector<std::string> mine;
    for (auto i = part.index; i < file_count(); i += part.shards) mine.push_back(paths_[static_cast<std::size_t>(i)]);
    return with_files(std::move(mine));
  }

 private:
  std::vector<std::string> paths_;
};

// Gives the paths.
class ListFilesStage final : public FileStage<Columns<std::string>> {
 public:
  using C = Columns<std::string>;
  using FileStage<C>::FileStage;
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<IndexedCursor<C>>(*this);
  }
  std::int64_t length() const override { return static_cast<std::int64_t>(files().size()); }
  std::string describe() const override { return describe_source("list_files", files()); }
  bool is_indexed() const override { return true; }
  void gather(std::span<const std::int64_t> numbers, C& out) const override;
  SharedStage<C> with_files(std::vector<std::string> paths) const override {
    return std::make_shared<ListFilesStage>(std::move(paths));
  }
};

// Returns the paths of the files.
inline Dataset<std::string> list_files(const Files& files) {
  return Dataset<std::string>(std::make_shared<ListFilesStage>(files.paths()));
}

}  // namespace lockstep::data
