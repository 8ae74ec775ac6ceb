// SPDX-License-Identifier: Apache-2.0
// Ranks that share cores, whatever nodes they believe to be on: virtual nodes and containers of one machine run on the
// same cores.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine/session.hpp"

namespace lockstep::command {

// Returns the boot id of a machine without its last group, which tools/cluster changes so that its nodes look like
// machines. Returns anything else as it is.
std::string_view machine_of_boot_id(std::string_view id);

struct SharedCores {
  std::size_t ranks = 0;
  std::size_t cores = 1;
  std::size_t nodes = 0;
  bool crowded() const { return ranks > cores; }
  std::string what() const;  // "8 ranks of 4 nodes on 2 cores of one machine"
};

// Returns the cores for which most ranks compete. `kernels` names the running kernel of each rank's machine.
SharedCores most_shared_cores(const Topology& topology, const std::vector<std::string>& kernels);
// The same, of this job. All ranks call it.
SharedCores most_shared_cores(Session& session);

}  // namespace lockstep::command
