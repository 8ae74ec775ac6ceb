// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.hpp"
#include "tools/lockstep/merge_timelines.hpp"

// What was read is merged with itself on another host.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const auto one = lockstep::command::parse_timeline(text, "fuzz");
    auto other = one;
    other.host += "'";
    other.rank = one.size - 1 - one.rank;
    const std::vector all{one, other};
    const auto clocks = lockstep::command::clocks_of(all);
    lockstep::fuzz::require(clocks.of_host.size() == 2);
    lockstep::command::trace_of(all, clocks);
    lockstep::command::summary_of(all, clocks);
  });
}
