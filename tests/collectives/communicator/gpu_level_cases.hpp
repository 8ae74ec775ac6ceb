// SPDX-License-Identifier: Apache-2.0
// Members on GPUs that some of them share, and on nodes that one does not have.
#pragma once

#include "tests/collectives/gpu/own_gpus.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::test {

struct LayoutOfGpus {
  std::string name;
  std::vector<int> devices;     // by member
  std::vector<int> nodes = {};  // members of each; none: one node
  int size() const { return static_cast<int>(devices.size()); }
};

// `body` with the member's communicator and GPU. A failed assertion names the rank.
inline void with_layout(const LayoutOfGpus& layout, const std::function<void(Communicator&, int)>& body,
                        CommunicatorOptions options = {}) {
  options.node_memory = node_memory();
  const auto guarded = [&](Communicator& world) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, text("rank ", world.rank(), " of ", layout.name));
    body(world, layout.devices[static_cast<std::size_t>(world.rank())]);
    if (testing::Test::HasFatalFailure()) throw std::runtime_error("an assertion failed");
  };
  try {
    if (layout.nodes.empty())
      run_members(layout.size(), guarded, options, short_limits, Log(LogLevel::off));
    else
      run_members(nodes_of(layout.nodes), guarded, options, short_limits, Log(LogLevel::off));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a rank ended with: " << error.what();
  }
}

}  // namespace lockstep::test
