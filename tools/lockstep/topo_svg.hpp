// SPDX-License-Identifier: Apache-2.0
// A topology as a picture in SVG: one file without scripts, fonts or links to elsewhere. Small clusters
// are drawn in full; of large ones each kind of node once, and all nodes as tiles.
#pragma once

#include <string>

#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

struct Picture {
  Scene scene;
  double width = 0;
  double height = 0;
  std::string title;
};

Picture topo_picture(const Topology& topology);
std::string topo_svg(const Topology& topology);

}  // namespace lockstep::command
