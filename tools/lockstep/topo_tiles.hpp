// SPDX-License-Identifier: Apache-2.0
// Many nodes as small tiles with their ranks, threaded on the line of the ring; when there are too many
// for a page, a tile stands for several neighbours.
#pragma once

#include <vector>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Draws into the area's width, as high as it takes, and returns where it ends.
double draw_tiles(Scene& scene, const Topology& topology, const std::vector<NodeKind>& kinds, const SceneBox& area);

}  // namespace lockstep::command
