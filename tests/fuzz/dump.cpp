// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.hpp"
#include "tools/lockstep/verdict.hpp"

// What was read once is read again as it was written, and has a verdict.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const auto seen = lockstep::command::parse_status_file(text, "fuzz");
    const auto again = lockstep::command::parse_status_file(lockstep::status::to_json(seen), "fuzz");
    lockstep::fuzz::require(again.process == seen.process && again.communicators.size() == seen.communicators.size());
    lockstep::command::verdicts({seen, again});
  });
}
