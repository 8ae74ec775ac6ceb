// SPDX-License-Identifier: Apache-2.0
// The picture of one node: packages, NUMA nodes and caches as nested boxes, cores as cells, members as
// labels on the cores where they may run, GPUs and interfaces as chips. Laid out once, drawn anywhere.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_scene.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Members with the same position on their nodes have the same colour: a colour is a rail.
std::string_view member_colour(int index_in_node);

inline constexpr double cell_gap = 5;

// One core, or several where the machine has too many to draw.
struct CoreCell {
  std::vector<int> cores;
  SceneBox box;                   // within the frame
  std::vector<int> ranks;         // whose label is here
  std::vector<RankLabel> labels;  // within the cell; the last ranks have none when there are too many
};

struct DeviceChip {
  std::string words;
  std::string more;  // behind the words, paler
  std::string tip;
  bool gpu = false;
  std::vector<int> near;  // members that it is near to
  SceneBox box;
};

// A package, NUMA node or cache; or the whole machine, which has no border.
struct CardFrame {
  SceneBox box;  // within the frame around it
  std::string title;
  int depth = 0;
  std::vector<CardFrame> inner;
  std::vector<CoreCell> cells;
  std::vector<DeviceChip> chips;
};

// Where a member's label lies, and the cell it lies in.
struct LabelPosition {
  SceneBox label;
  SceneBox cell;
};

class NodeCard {
 public:
  // `cell` is the least side of a core's cell; what is inside is arranged to fit `width` if it can.
  NodeCard(const Topology& topology, int node, double cell, double width);

  double width() const { return width_; }
  double height() const { return height_; }
  // Draws it with at least its own size, and says where the labels of its members are.
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
