// SPDX-License-Identifier: Apache-2.0
// What those that are left of a communicator say to each other: any bytes are a message that survives being written
// again, or are refused.
#include "collectives/engine/shrink_message.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    constexpr int members = 64;
    const shrinking::ShrinkMessage message = shrinking::parse_shrink_message(std::as_bytes(std::span(text)), members);
    fuzz::require(shrinking::parse_shrink_message(shrinking::to_bytes(message), members) == message);
  });
}
