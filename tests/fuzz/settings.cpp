// SPDX-License-Identifier: Apache-2.0
#include "topology/base/settings.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const auto settings = lockstep::Settings::from_lines(lockstep::split(text, '\n'));
    lockstep::fuzz::require(settings.timeout() >= lockstep::Duration{} &&
                            settings.stall_warn() >= lockstep::Duration{});
  });
}
