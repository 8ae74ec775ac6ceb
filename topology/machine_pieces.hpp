// SPDX-License-Identifier: Apache-2.0
// A machine shared out among so many: pieces that have as much of a package, a NUMA node, a cache and a core to
// themselves as there is, neighbours next to each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

struct MachinePiece {
  IndexSet pus;      // positions in machine.pus
  std::string name;  // "package 0", "core 3", "hardware threads 0-3" as the system counts them
  bool operator==(const MachinePiece&) const = default;
};

// Of the hardware threads that may be used. Where there are more pieces than hardware threads, some are the same.
std::vector<MachinePiece> divide(const MachineShape& machine, const IndexSet& allowed, int pieces);

// For each of these GPUs, by their places on the bus, a piece of the NUMA node, or the package, that it is at: those of
// one share it out. Nothing, an empty piece, for a GPU that the machine does not know, or at whose place nothing may be
// used.
std::vector<MachinePiece> divide_near(const MachineShape& machine, const IndexSet& allowed,
                                      const std::vector<std::string>& gpus);

}  // namespace lockstep
