// SPDX-License-Identifier: Apache-2.0
// What engines tell each other: any bytes are a word that survives being written again, or are refused.
#include "collectives/engine/control_message.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const ControlMessage word = parse_control_message(std::as_bytes(std::span(text)));
    fuzz::require(parse_control_message(to_bytes(word)).index() == word.index());
  });
}
