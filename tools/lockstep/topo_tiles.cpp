// SPDX-License-Identifier: Apache-2.0
// Arranges tiles in rows, and draws them with their labels.
#include "tools/lockstep/topo_tiles.hpp"

#include <algorithm>

#include "tools/lockstep/topo_card.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr double tile_height = 46;
constexpr double tile_gap = 14;
constexpr std::size_t tile_columns = 8;
constexpr std::size_t most_tiles = 144;
constexpr std::string_view network_colour = "#e11d48";

struct Tile {
  int first = 0;  // node
  int last = 0;
  SceneBox box;
};

std::vector<Tile> arrange(int nodes, const SceneBox& area) {
  const int together = (nodes + static_cast<int>(most_tiles) - 1) / static_cast<int>(most_tiles);
  const double width = (area.width + tile_gap) / static_cast<double>(tile_columns) - tile_gap;
  std::vector<Tile> tiles;
  for (int first = 0; first < nodes; first += together) {
    const ScenePoint place = grid_place(tiles.size(), tile_columns);
    tiles.push_back(
        {first,
         std::min(first + together, nodes) - 1,
         {area.x + place.x * (width + tile_gap), area.y + place.y * (tile_height + tile_gap), width, tile_height}});
  }
  return tiles;
}

// Draws the line behind the tiles: along each row, then back below it to the next.
void draw_thread(Scene& scene, const std::vector<Tile>& tiles, const SceneBox& area) {
  for (std::size_t i = 0; i + 1 < tiles.size(); ++i) {
    const SceneBox& a = tiles[i].box;
    const SceneBox& b = tiles[i + 1].box;
    const Paint paint{.stroke = network_colour, .stroke_width = 1.5};
    if (a.y == b.y) {
      scene.line({{a.right(), a.middle_y()}, {b.x, b.middle_y()}}, paint);
      continue;
    }
    const double right = a.right() + tile_gap / 2;
    const double y = a.bottom() + tile_gap / 2;
    const double left = area.x - tile_gap / 2;
    scene.line({{a.right(), a.middle_y()},
                {right, a.middle_y()},
                {right, y},
                {left, y},
                {left, b.middle_y()},
                {b.x, b.middle_y()}},
               paint);
  }
  if (tiles.size() < 2) return;
  const SceneBox& last = tiles.back().box;
  const SceneBox& first = tiles.front().box;
  const double y = last.bottom() + tile_gap / 2;
  const double left = area.x - tile_gap / 2 - 6;
  scene.line({{last.middle_x(), last.bottom()},
              {last.middle_x(), y},
              {left, y},
              {left, first.middle_y()},
              {first.x, first.middle_y()}},
             {.stroke = network_colour, .stroke_width = 1.3, .dash = "2 4"});
}

// Returns the kind of all nodes of the tile, or one past the last if they differ.
std::size_t kind_of(const Tile& tile, const std::vector<std::size_t>& kind_of_node, std::size_t kinds) {
  const std::size_t kind = kind_of_node.at(static_cast<std::size_t>(tile.first));
  for (int node = tile.first; node <= tile.last; ++node) {
    if (kind_of_node.at(static_cast<std::size_t>(node)) != kind) return kinds;
  }
  return kind;
}

void draw_tile(Scene& scene, const Topology& topology, const Tile& tile, std::string_view colour) {
  std::vector<std::string> hosts;
  std::vector<int> ranks;
  for (int node = tile.first; node <= tile.last; ++node) {
    hosts.push_back(topology.node(node).host);
    const auto own = topology.ranks_of_node(node);
    ranks.insert(ranks.end(), own.begin(), own.end());
  }
  const std::string name = fold_names(hosts, 1);
  std::string range = fold_numbers(ranks, 1);
  const SceneBox& box = tile.box;
  scene.rectangle(SceneLayer::boxes, box, 8, {.fill = "#ffffff", .stroke = "#d3dbe5"},
                  text(name, ": ranks ", fold_numbers(ranks, 8)));
  scene.rectangle(SceneLayer::boxes, {box.x + 6, box.y + 8, 3.5, box.height - 16}, 1.7, {.fill = colour});
  scene.words(SceneLayer::boxes, {box.x + 16, box.y + 18}, fitted(name, 10, box.width - 20),
              {.size = 10, .fill = "#64748b"});
  const std::string leader = text(topology.ranks_of_node(tile.first).front());
  const double width = std::max(18.0, text_width(leader, 9, true) + 8);
  const SceneBox mark{box.x + 16, box.y + 24, width, 15};
  scene.rectangle(SceneLayer::dots, mark, 7.5, {.fill = member_colour(0), .stroke = "#0f172a", .stroke_width = 1.6},
                  text("rank ", leader, ", leader"));
  scene.words(SceneLayer::dots, {mark.middle_x(), mark.middle_y() + 3.3}, leader,
              {.size = 9, .fill = "#ffffff", .bold = true, .anchor = "middle"});
  const double room = box.right() - mark.right() - 8;
  const bool one_run = range == text(ranks.front(), "-", ranks.back());
  if (one_run && text_width(range, 11) > room) range = text("to ", ranks.back());
  scene.words(SceneLayer::boxes, {mark.right() + 6, box.y + 35.5}, fitted(range, 11, room),
              {.size = 11, .fill = "#0f172a"});
}

}  // namespace

double draw_tiles(Scene& scene, const Topology& topology, const std::vector<NodeKind>& kinds, const SceneBox& area) {
  constexpr std::string_view other = "#cbd5e1";
  constexpr std::size_t most_coloured = 6;
  std::vector<std::size_t> kind_of_node(static_cast<std::size_t>(topology.node_count()));
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const int node : kinds[kind].nodes) kind_of_node.at(static_cast<std::size_t>(node)) = kind;
  }
  const std::vector<Tile> tiles = arrange(topology.node_count(), area);
  draw_thread(scene, tiles, area);
  for (const Tile& tile : tiles) {
    const std::size_t kind = kind_of(tile, kind_of_node, kinds.size());
    const bool coloured = kinds.size() > 1 && kind < std::min(kinds.size(), most_coloured);
    draw_tile(scene, topology, tile, coloured ? member_colour(static_cast<int>(kind)) : other);
  }
  return tiles.empty() ? area.y : tiles.back().box.bottom() + tile_gap;
}

}  // namespace lockstep::command
