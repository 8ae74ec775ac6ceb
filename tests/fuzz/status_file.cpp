// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "collectives/engine/status_reader.hpp"
#include "tests/fuzz/fuzz.hpp"

// The bytes overwrite parts of a valid status file: its headers, the first entry, and some calls.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::status::StatusFile;
  static std::vector<std::byte> bytes(sizeof(StatusFile));
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    std::memcpy(bytes.data() + offsetof(StatusFile, magic), &lockstep::status::magic, sizeof lockstep::status::magic);
    std::memcpy(bytes.data() + offsetof(StatusFile, layout), &lockstep::status::layout,
                sizeof lockstep::status::layout);
    for (const std::size_t begin :
         {offsetof(StatusFile, process), offsetof(StatusFile, statuses), offsetof(StatusFile, statuses) + 1116}) {
      const std::size_t count = std::min(text.size(), bytes.size() - begin);
      std::memcpy(bytes.data() + begin, text.data(), count);
    }
    const auto seen = lockstep::status::read(bytes, 0, 1);
    lockstep::fuzz::require(seen.size() <= lockstep::status::most_statuses);
    lockstep::status::read_members(std::as_bytes(std::span(text)), 3, 1);
    lockstep::status::to_json({.host = "fuzz", .process = 0, .communicators = seen});
  });
}
