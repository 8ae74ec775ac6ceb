// SPDX-License-Identifier: Apache-2.0
// Finds the ends of lines.
#include "runtime/data/files/lines.hpp"

#include "runtime/data/files/text_cursor.hpp"

namespace lockstep::data {
namespace {

// Appends the next line. Returns false at the end of the file.
bool append_line(InputFile& file, Column<std::string>& out) {
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

}  // namespace

std::unique_ptr<Cursor<LinesStage::C>> LinesStage::open(const Opening& /*opening*/) const {
  return std::make_unique<TextCursor>(files(), append_line);
}

}  // namespace lockstep::data
