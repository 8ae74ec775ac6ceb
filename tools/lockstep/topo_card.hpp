// SPDX-License-Identifier: Apache-2.0
// Draws one node: packages, NUMA nodes and caches as nested boxes, cores as cells, GPUs and interfaces as chips.
// Members are labels on the cores that they may use. The layout is computed once, and can be drawn at any place.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Returns the colour of members with this position on their nodes: a colour is a rail.
std::string_view member_colour(int index_in_node);

// The gap between cells is in pixels.
inline constexpr double cell_gap = 5;

// Holds one core, or several if the machine has too many to draw.
struct CoreCell {
  std::vector<int> cores;
  SceneBox box;                   // in coordinates of the frame
  std::vector<int> ranks;         // ranks with a label here
  std::vector<RankLabel> labels;  // in coordinates of the cell; with too many ranks the last have none
};

// Holds a GPU or a network interface.
struct DeviceChip {
  std::string words;
  std::string more;  // after the words, in a paler colour
  std::string tip;
  bool gpu = false;
  std::vector<int> near;  // members that are near it
  SceneBox box;
};

// Holds a package, a NUMA node or a cache; or the whole machine, which has no border.
struct CardFrame {
  SceneBox box;  // in coordinates of the frame around it
  std::string title;
  int depth = 0;
  std::vector<CardFrame> inner;
  std::vector<CoreCell> cells;
  std::vector<DeviceChip> chips;
};

// Holds the box of a member's label, and that of its cell.
struct LabelPosition {
  SceneBox label;
  SceneBox cell;
};

// Lays out and draws a node. The topology must outlive it.
class NodeCard {
 public:
  // `cell` is the shortest side of a core's cell. The layout fits `width` if possible.
  NodeCard(const Topology& topology, int node, double cell, double width);

  double width() const { return width_; }
  double height() const { return height_; }
  // Draws the node with at least its own size. Returns the places of its members' labels.
  std::map<int, LabelPosition> draw(Scene& scene, const SceneBox& box, std::string_view title) const;

 private:
  const Topology& topology_;
  int node_;
  CardFrame machine_;
  std::vector<std::string> notes_;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace lockstep::command
