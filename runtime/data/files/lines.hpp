// SPDX-License-Identifier: Apache-2.0
// Reads lines of text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/files/files.hpp"

namespace lockstep::data {

// Gives the lines of files.
class LinesStage final : public FileStage<Columns<std::string>> {
 public:
  using C = Columns<std::string>;
  using FileStage<C>::FileStage;
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override;
  std::int64_t length() const override { return unknown_length; }
  std::string describe() const override { return describe_source("from_lines", files()); }
  SharedStage<C> with_files(std::vector<std::string> paths) const override {
    return std::make_shared<LinesStage>(std::move(paths));
  }
};

// Returns the lines of the files in order, without the ends "\n" and "\r\n". The files may be gzip files.
inline Dataset<std::string> from_lines(const Files& files) {
  return Dataset<std::string>(std::make_shared<LinesStage>(files.paths()));
}

}  // namespace lockstep::data
