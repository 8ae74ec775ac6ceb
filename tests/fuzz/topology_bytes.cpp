// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.hpp"
#include "topology/group.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const Topology topology = Topology::from_bytes(to_bytes(text));
    fuzz::require(Topology::from_bytes(topology.to_bytes()) == topology);
    fuzz::require(world_group(topology, 0).contains_me());
    for (int node = 0; node < topology.node_count(); ++node) topology.members_per_core(node);
  });
}
