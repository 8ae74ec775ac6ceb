// SPDX-License-Identifier: Apache-2.0
// Reads the texts of several files: lines, or records.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/files/input_file.hpp"
#include "runtime/data/stage.hpp"

namespace lockstep::data {

// Reads texts one after the other.
class TextCursor final : public Cursor<Columns<std::string>> {
 public:
  using C = Columns<std::string>;
  // Appends the next text of a file. Returns false at the file's end.
  using Append = bool (*)(InputFile& file, Column<std::string>& out);

  // The paths must outlive it.
  TextCursor(const std::vector<std::string>& paths, Append append, IsPlain is_plain = nullptr)
      : files_(paths, is_plain), append_(append) {}
  void save(Writer& to) const override { files_.save(to); }
  void seek(Reader& from) override { files_.seek(from); }

 private:
  void read_rows(C& out, std::size_t max_rows) override {
    std::size_t left = max_rows;
    while (InputFile* const file = left > 0 ? files_.current() : nullptr) {
      if (append_(*file, std::get<0>(out)))
        --left;
      else
        files_.leave();
    }
  }

  FileSequence files_;
  Append append_;
};

}  // namespace lockstep::data
