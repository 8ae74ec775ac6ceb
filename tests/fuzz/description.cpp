// SPDX-License-Identifier: Apache-2.0
#include "topology/description.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    int nodes = 0;
    for (const lockstep::NodeDescription& each : lockstep::parse_description(text)) {
      lockstep::fuzz::require(each.count >= 1 && each.gpus >= 0 && !each.hwloc.empty());
      nodes += each.count;
    }
    lockstep::fuzz::require(nodes <= 65536);
  });
}
