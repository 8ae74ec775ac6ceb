// SPDX-License-Identifier: Apache-2.0
// Divides a machine into pieces, for members that share it. A piece keeps packages, NUMA nodes, caches and cores
// whole as far as possible. Neighbouring pieces are neighbours in the machine.
#pragma once

#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

// Holds the hardware threads of one piece, and a name for people.
struct MachinePiece {
  IndexSet pus;      // positions in machine.pus
  std::string name;  // "package 0", "core 3", or "hardware threads 0-3" in the system's numbers
  bool operator==(const MachinePiece&) const = default;
};

// Divides the allowed hardware threads. If there are more pieces than those, some pieces are the same. Throws Error
// internal if nothing is allowed, or `pieces` is below 1.
std::vector<MachinePiece> divide(const MachineShape& machine, const IndexSet& allowed, int pieces);

// Returns a piece for each of these GPUs, which are given by their places on the PCI bus. It lies in the GPU's NUMA
// node, or its package; GPUs of one place share it out. A piece is empty if the machine does not know the GPU, or
// nothing is allowed there.
std::vector<MachinePiece> divide_by_device(const MachineShape& machine, const IndexSet& allowed,
                                           const std::vector<std::string>& gpus);

}  // namespace lockstep
