// SPDX-License-Identifier: Apache-2.0
// Draws a topology as SVG: one file without scripts, fonts or external links. Small clusters are drawn in full. Large
// ones show each kind of node once, and all nodes as tiles.
#pragma once

#include <string>

#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Holds the finished drawing. Sizes are in pixels.
struct Picture {
  Scene scene;
  double width = 0;
  double height = 0;
  std::string title;
};

// Draws the topology; topo_svg() returns the same as text.
Picture topo_picture(const Topology& topology);
std::string topo_svg(const Topology& topology);

}  // namespace lockstep::command
