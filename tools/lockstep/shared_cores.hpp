// SPDX-License-Identifier: Apache-2.0
// Finds ranks that share cores. Their nodes do not tell, because virtual nodes and containers of one machine run on the
// same cores.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine/session.hpp"

namespace lockstep::command {

// Returns the boot id of a machine without its last group. tools/cluster changes that group, so that its nodes look
// like machines. Returns any other text unchanged.
std::string_view machine_of_boot_id(std::string_view id);

// Holds the cores of one machine, and the ranks on them.
struct SharedCores {
  std::size_t ranks = 0;
  std::size_t cores = 1;
  std::size_t nodes = 0;
  bool crowded() const { return ranks > cores; }
  std::string what() const;  // "8 ranks of 4 nodes on 2 cores of one machine"
};

// Returns the cores for which most ranks compete. `kernels` has the boot id of the kernel of each rank's machine.
SharedCores most_shared_cores(const Topology& topology, const std::vector<std::string>& kernels);
// Does the same for this job. All ranks call it.
SharedCores most_shared_cores(Session& session);

}  // namespace lockstep::command
