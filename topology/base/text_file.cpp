// SPDX-License-Identifier: Apache-2.0
#include "topology/base/text_file.hpp"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string read_text_file(const std::string& path, std::size_t most, std::string_view named_by) {
  const std::string shown =
      named_by.empty() ? text('"', printable(path, 200), '"') : text(named_by, '=', printable(path, 200));
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(Code::file, text(shown, " is no regular file"), "give the path of a text file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(Code::file, text(shown, " cannot be read: ", std::generic_category().message(errno)),
                "give the path of a file that all members can read");
  std::string all;
  std::array<char, 65536> part{};
  while (file.read(part.data(), part.size()), file.gcount() > 0) {
    all.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (all.size() > most)
      throw Error(Code::file, text(shown, " has more than ", format_bytes(most)), "give a smaller file");
  }
  if (file.bad()) throw Error(Code::file, text(shown, " cannot be read"), "look at the disk behind it");
  return all;
}

}  // namespace lockstep
