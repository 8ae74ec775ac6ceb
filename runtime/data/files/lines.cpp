// SPDX-License-Identifier: Apache-2.0
// Finds the ends of lines.
#include "runtime/data/files/lines.hpp"

#include "runtime/data/files/input_file.hpp"

namespace lockstep::data {
namespace {

class LinesCursor final : public Cursor<LinesStage::C> {
 public:
  explicit LinesCursor(const std::vector<std::string>& paths) : files_(paths) {}
  void save(Writer& to) const override { files_.save(to); }
  void seek(Reader& from) override { files_.seek(from); }

 private:
  void read_rows(LinesStage::C& out, std::size_t max_rows) override {
    std::size_t left = max_rows;
    while (InputFile* const file = left > 0 ? files_.current() : nullptr) {
      if (append_line(*file, std::get<0>(out)))
        --left;
      else
        files_.leave();
    }
  }
  // False at the end of the file.
  static bool append_line(InputFile& file, Column<std::string>& out) {
    std::string_view bytes = file.peek(1);
    if (bytes.empty()) return false;
    std::size_t end = bytes.find('\n');
    while (end == std::string_view::npos) {
      const std::size_t searched = bytes.size();
      bytes = file.peek(searched + 1);
      if (bytes.size() == searched) break;
      end = bytes.find('\n', searched);
    }
    std::string_view line = bytes.substr(0, end);
    file.skip(line.size() + (end == std::string_view::npos ? 0 : 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.append_row(line);
    return true;
  }

  FileSequence files_;
};

}  // namespace

std::unique_ptr<Cursor<LinesStage::C>> LinesStage::open(const Opening& /*opening*/) const {
  return std::make_unique<LinesCursor>(files());
}

}  // namespace lockstep::data
