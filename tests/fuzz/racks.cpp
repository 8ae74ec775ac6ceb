// SPDX-License-Identifier: Apache-2.0
#include "topology/racks.hpp"

#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    const lockstep::Racks racks = lockstep::parse_racks(text, "LOCKSTEP_RACKS");
    lockstep::fuzz::require(racks.uplink_mbit_per_s >= 0);
    for (const auto& [host, rack] : racks.rack_of) lockstep::fuzz::require(racks.of(host) == rack && !rack.empty());
  });
}
