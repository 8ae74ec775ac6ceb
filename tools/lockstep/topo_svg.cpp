// SPDX-License-Identifier: Apache-2.0
// Arranges cards, tiles, the ring and the legend on the page.
#include "tools/lockstep/topo_svg.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tools/lockstep/topo_card.hpp"
#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_tiles.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr double margin = 36;
constexpr double most_width = 1200;
constexpr double least_width = 660;
constexpr double head = 96;      // height of the title
constexpr double card_gap = 30;  // between cards
constexpr int most_cards = 8;
constexpr int most_drawn_members = 320;
constexpr Paint inside_ring{.stroke = "#475569", .stroke_width = 1.5};
constexpr Paint network_ring{.stroke = "#e11d48", .stroke_width = 1.5};
constexpr Paint closing_ring{.stroke = "#e11d48", .stroke_width = 1.3, .dash = "2 4"};

struct PlacedCard {
  int node = 0;
  std::string title;
  NodeCard card;
  SceneBox box;  // on the page
};

// Holds cards of equal size in a grid that begins at the margin.
struct Grid {
  std::vector<PlacedCard> cards;
  double width = 0;
  double height = 0;
};

Grid make_grid(const Topology& topology, const std::vector<int>& nodes, std::size_t columns, double cell) {
  const double width = (most_width - 2 * margin + card_gap) / static_cast<double>(columns) - card_gap;
  Grid grid;
  SceneBox step;
  for (const int node : nodes) {
    grid.cards.push_back({node, printable(topology.node(node).host), NodeCard(topology, node, cell, width), {}});
    step.width = std::max(step.width, grid.cards.back().card.width() + card_gap);
    step.height = std::max(step.height, grid.cards.back().card.height() + card_gap);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const ScenePoint place = grid_place(i, columns);
    grid.cards[i].box = {margin + place.x * step.width, place.y * step.height, step.width - card_gap,
                         step.height - card_gap};
  }
  grid.width = static_cast<double>(columns) * step.width - card_gap;
  grid.height = grid.cards.back().box.bottom();
  return grid;
}

// Returns the grid with the largest cells with which all cards fit the page. If none fits, it returns the lowest grid.
Grid fit_grid(const Topology& topology, const std::vector<int>& nodes, double height) {
  std::optional<Grid> lowest;
  for (const double cell : {92.0, 80.0, 70.0, 62.0, 56.0, 50.0, 44.0, 38.0, 32.0, 28.0, 24.0}) {
    for (std::size_t columns = 1; columns <= std::min<std::size_t>(nodes.size(), 4); ++columns) {
      Grid grid = make_grid(topology, nodes, columns, cell);
      const bool fits = grid.width <= most_width - 2 * margin;
      if (fits && grid.height <= height) return grid;
      if ((fits || columns == 1) && (!lowest || grid.height < lowest->height)) lowest = std::move(grid);
    }
  }
  return std::move(*lowest);
}

// Places kinds of nodes side by side while there is room. They differ in size.
Grid flow(const Topology& topology, const std::vector<NodeKind>& kinds, std::size_t most) {
  Grid all;
  const double height = kinds.size() == 1 ? 460 : 320;
  ScenePoint at{margin, 0};
  double row = 0;
  for (std::size_t i = 0; i < std::min(most, kinds.size()); ++i) {
    PlacedCard placed = std::move(fit_grid(topology, {kinds[i].exemplar()}, height).cards.front());
    if (kinds[i].nodes.size() > 1) placed.title += text(", one of ", kinds[i].nodes.size(), " alike");
    placed.box.width = std::max(placed.box.width, text_width(placed.title, 15, true) + 200);
    if (at.x > margin && at.x + placed.box.width > most_width - margin) {
      at = {margin, at.y + row + card_gap};
      row = 0;
    }
    placed.box.x = at.x;
    placed.box.y = at.y;
    at.x += placed.box.width + card_gap;
    row = std::max(row, placed.box.height);
    all.width = std::max(all.width, placed.box.right() - margin);
    all.cards.push_back(std::move(placed));
  }
  all.height = at.y + row;
  return all;
}

double draw_head(Scene& scene, const Topology& topology, std::string_view title) {
  scene.words(SceneLayer::boxes, {margin, 50}, title, {.size = 24, .fill = ink, .bold = true});
  std::string line = network_line(topology);
  if (line.empty()) line = inside_of(topology.machine_of_node(0));
  scene.words(SceneLayer::boxes, {margin, 74}, fitted(line, 13, most_width - 2 * margin), {.size = 13, .fill = pale});
  return head;
}

// Returns the way from one label to the next, around the things between them.
std::vector<ScenePoint> hop(const LabelPosition& from, const LabelPosition& to) {
  const ScenePoint begin{from.label.middle_x(), from.label.middle_y()};
  const ScenePoint end{to.label.middle_x(), to.label.middle_y()};
  constexpr double half = cell_gap / 2;
  if (std::abs(begin.y - end.y) < 1 || std::abs(begin.x - end.x) < 1) return {begin, end};
  if (from.cell.x == to.cell.x && from.cell.y == to.cell.y) {
    const double y = to.label.y - 1.5;
    return {begin, {begin.x, y}, {end.x, y}, end};
  }
  if (end.x > begin.x) {
    const double x = to.cell.x - half;
    return {begin, {x, begin.y}, {x, end.y}, end};
  }
  const double y = to.cell.y - half;
  return {begin, {begin.x, y}, {end.x, y}, end};
}

// Returns the way from one card to another: down to the gutter below it, along to the gutter left of the other, and in.
std::vector<ScenePoint> far_hop(const LabelPosition& from, const SceneBox& from_card, const LabelPosition& to,
                                const SceneBox& to_card, double lane) {
  const ScenePoint begin{from.label.middle_x(), from.label.middle_y()};
  const ScenePoint end{to.label.middle_x(), to.label.middle_y()};
  const double y = from_card.bottom() + card_gap / 2 + lane;
  const double x = to_card.x - card_gap / 2 - lane;
  return {begin, {begin.x, y}, {x, y}, {x, end.y}, end};
}

struct CardPositions {
  std::map<int, LabelPosition> spots;
  std::map<int, SceneBox> cards;  // by node
};

void draw_ring_inside(Scene& scene, const Topology& topology, const CardPositions& drawn) {
  for (const auto& [node, card] : drawn.cards) {
    const LabelPosition* before = nullptr;
    for (const int rank : topology.ranks_of_node(node)) {
      const auto spot = drawn.spots.find(rank);
      if (spot == drawn.spots.end()) continue;  // no label: too many on one core
      if (before != nullptr) scene.line(hop(*before, spot->second), inside_ring);
      before = &spot->second;
    }
  }
}

// Draws the ring between the nodes, if all are drawn. The ways to the next card of a row, to the next row and back to
// the first have lanes of their own.
void draw_ring_between(Scene& scene, const Topology& topology, const CardPositions& drawn) {
  for (int node = 0; topology.node_count() > 1 && node < topology.node_count(); ++node) {
    const int next = (node + 1) % topology.node_count();
    const auto from = drawn.spots.find(topology.ranks_of_node(node).back());
    const auto to = drawn.spots.find(topology.ranks_of_node(next).front());
    if (from == drawn.spots.end() || to == drawn.spots.end()) continue;
    const SceneBox& a = drawn.cards.at(node);
    const SceneBox& b = drawn.cards.at(next);
    const double lane = next == 0 ? 6 : a.y == b.y ? -4 : 1;
    scene.line(far_hop(from->second, a, to->second, b, lane), next == 0 ? closing_ring : network_ring);
  }
}

CardPositions draw_cards(Scene& scene, const Grid& grid, double top) {
  CardPositions drawn;
  for (const PlacedCard& each : grid.cards) {
    SceneBox box = each.box;
    box.y += top;
    drawn.cards[each.node] = box;
    drawn.spots.merge(each.card.draw(scene, box, each.title));
  }
  return drawn;
}

class Legend {
 public:
  Legend(Scene& scene, double top, double width) : scene_(scene), y_(top + 14), right_(margin + width) {}

  void label(std::string_view words, bool leader, bool outlined) {
    const ScenePoint at = next(words, 22);
    const SceneBox dot{at.x, at.y - 8, 16, 16};
    const Paint ring{.fill = "#ffffff", .stroke = ink, .stroke_width = 1.6};
    const Paint outline{.fill = "#ffffff", .stroke = member_colour(0), .stroke_width = 1.4};
    if (leader) scene_.rectangle(SceneLayer::dots, {dot.x - 2.5, dot.y - 2.5, 21, 21}, 10.5, ring);
    scene_.rectangle(SceneLayer::dots, dot, 8, outlined ? outline : Paint{.fill = member_colour(0)});
  }
  void cell(std::string_view words, std::string_view colour) {
    const ScenePoint at = next(words, 22);
    const SceneBox box{at.x, at.y - 8, 16, 16};
    scene_.rectangle(SceneLayer::cells, box, 4, {.fill = "#ffffff", .stroke = "#d5dde7"});
    if (!colour.empty())
      scene_.rectangle(SceneLayer::cells, box, 4, {.fill = colour, .stroke = colour, .opacity = 0.16});
  }
  void near(std::string_view words) {
    const ScenePoint at = next(words, 16);
    scene_.rectangle(SceneLayer::dots, {at.x, at.y - 3.5, 7, 7}, 3.5, {.fill = member_colour(0)});
  }
  void line(std::string_view words, const Paint& paint) {
    const ScenePoint at = next(words, 32);
    scene_.line({at, {at.x + 26, at.y}}, paint);
  }
  double bottom() const { return y_ + 26; }

 private:
  // Returns the place of the next symbol. The words after it are written already.
  ScenePoint next(std::string_view words, double symbol) {
    const double width = symbol + text_width(words, 11.5) + 18;
    if (x_ + width > right_ && x_ > margin) {
      x_ = margin;
      y_ += 26;
    }
    const ScenePoint at{x_, y_};
    scene_.words(SceneLayer::boxes, {x_ + symbol + 2, y_ + 4}, words, {.size = 11.5, .fill = "#334155"});
    x_ += width;
    return at;
  }

  Scene& scene_;
  double x_ = margin;
  double y_;
  double right_;
};

// Tells the content of the picture. The legend explains no more than that.
struct LegendContent {
  bool shared = false;
  bool alone = false;
  bool unused = false;
  bool gpus = false;
};

LegendContent uses_of(const Topology& topology, const Grid& grid) {
  LegendContent uses;
  for (const PlacedCard& each : grid.cards) {
    const int node = each.node;
    std::map<int, int> count;
    IndexSet used;
    for (const int rank : topology.ranks_of_node(node)) {
      ++count[topology.member(rank).place];
      used.insert(topology.place_of(rank).pus);
      uses.gpus = uses.gpus || !topology.place_of(rank).gpus.empty();
    }
    for (const auto& [place, members] : count) (members > 1 ? uses.shared : uses.alone) = true;
    uses.unused = uses.unused || used.size() < topology.machine_of_node(node).pus.size();
  }
  return uses;
}

double draw_legend(Scene& scene, const Topology& topology, const Grid& grid, double top, double width) {
  const LegendContent uses = uses_of(topology, grid);
  Legend legend(scene, top, width);
  legend.label("leader of its node", true, !uses.alone);
  if (uses.alone) legend.label("member with cores of its own", false, false);
  if (uses.alone) legend.cell("its cores", member_colour(0));
  if (uses.shared) legend.label("member that shares its cores with others", false, true);
  if (uses.shared) legend.cell("shared cores", "#94a3b8");
  if (uses.unused) legend.cell("core that no member uses", "");
  if (uses.gpus) legend.near("on a GPU: members near to it");
  if (topology.size() > 1) legend.line("order of the ring", inside_ring);
  if (topology.node_count() > 1) legend.line("over the network", network_ring);
  if (topology.node_count() > 1) legend.line("back to the first", closing_ring);
  return legend.bottom();
}

std::vector<int> all_nodes(const Topology& topology) { return IndexSet::range(0, topology.node_count() - 1).members(); }

void draw_all(Picture& picture, const Topology& topology) {
  const Grid grid = fit_grid(topology, all_nodes(topology), 900);
  picture.width = std::max(least_width, grid.width + 2 * margin);
  const double top = draw_head(picture.scene, topology, picture.title);
  const CardPositions drawn = draw_cards(picture.scene, grid, top);
  draw_ring_inside(picture.scene, topology, drawn);
  draw_ring_between(picture.scene, topology, drawn);
  picture.height = draw_legend(picture.scene, topology, grid, top + grid.height + 40, picture.width - 2 * margin);
}

void section(Scene& scene, double y, std::string_view words) {
  scene.words(SceneLayer::boxes, {margin, y}, words, {.size = 15, .fill = ink, .bold = true});
}

// Draws each kind of node once, then all nodes as tiles.
void draw_overview(Picture& picture, const Topology& topology) {
  Scene& scene = picture.scene;
  const std::vector<NodeKind> kinds = kinds_of(topology);
  const Grid grid = flow(topology, kinds, 3);
  picture.width = std::max(most_width, grid.width + 2 * margin);
  double y = draw_head(scene, topology, picture.title) + 8;
  const bool some = grid.cards.size() < kinds.size();
  section(scene, y,
          text("Inside a node", some ? text(", the first ", grid.cards.size(), " of ", kinds.size(), " kinds") : ""));
  y += 16;
  draw_ring_inside(scene, topology, draw_cards(scene, grid, y));
  for (std::size_t kind = 0; kinds.size() > 1 && kind < grid.cards.size(); ++kind) {
    const SceneBox& card = grid.cards[kind].box;
    scene.rectangle(SceneLayer::cells, {card.x + 5, y + card.y + 11, 4, 34}, 2,
                    {.fill = member_colour(static_cast<int>(kind))});
  }
  y += grid.height + 44;
  section(scene, y, text("All nodes, in the order of the ring", kinds.size() > 1 ? "; each kind has a colour" : ""));
  y = draw_tiles(scene, topology, kinds, {margin, y + 16, most_width - 2 * margin, 0});
  picture.height = draw_legend(scene, topology, grid, y + 24, picture.width - 2 * margin);
}

}  // namespace

Picture topo_picture(const Topology& topology) {
  Picture picture;
  picture.title = headline(topology);
  const bool few = topology.node_count() <= most_cards && topology.size() <= most_drawn_members;
  if (few || topology.node_count() == 1)
    draw_all(picture, topology);
  else
    draw_overview(picture, topology);
  return picture;
}

std::string topo_svg(const Topology& topology) {
  const Picture picture = topo_picture(topology);
  return picture.scene.svg(picture.width, picture.height, picture.title);
}

}  // namespace lockstep::command
