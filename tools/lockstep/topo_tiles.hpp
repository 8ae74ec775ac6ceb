// SPDX-License-Identifier: Apache-2.0
// Draws many nodes as small tiles with their ranks, joined by the line of the ring. If there are too many for a page, a
// tile stands for several neighbours.
#pragma once

#include <vector>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Draws into the area's width, as high as necessary. Returns the lower end of the drawing.
double draw_tiles(Scene& scene, const Topology& topology, const std::vector<NodeKind>& kinds, const SceneBox& area);

}  // namespace lockstep::command
