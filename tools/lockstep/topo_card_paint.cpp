// SPDX-License-Identifier: Apache-2.0
// Draws a card, after everything on it has a place.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tools/lockstep/topo_card.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::string_view shared = "#94a3b8";  // cores of members that share their place

SceneBox moved(const SceneBox& box, ScenePoint by) { return {box.x + by.x, box.y + by.y, box.width, box.height}; }

class Painter {
 public:
  Painter(Scene& scene, const Topology& topology, int node)
      : scene_(scene), topology_(topology), machine_(topology.machine_of_node(node)) {
    for (const int rank : topology.ranks_of_node(node)) by_place_[topology.member(rank).place].push_back(rank);
    for (std::size_t i = 0; i < machine_.pus.size(); ++i) pus_of_[machine_.pus[i].core].push_back(static_cast<int>(i));
    for (const auto& [place, ranks] : by_place_) {
      for (const int pu : topology.place_of(ranks.front()).pus.members()) places_of_[pu].push_back(place);
    }
  }

  void paint(const CardFrame& frame, ScenePoint at) {
    constexpr std::array<std::string_view, 3> fills = {"#f1f5f9", "#e6ecf3", "#dbe4ee"};
    const SceneBox box = moved(frame.box, at);
    if (!frame.title.empty()) {
      const std::string_view fill = fills.at(static_cast<std::size_t>(frame.depth) % fills.size());
      scene_.rectangle(SceneLayer::boxes, box, 9, {.fill = fill, .stroke = "#cbd5e1"});
      scene_.words(SceneLayer::boxes, {box.x + 10, box.y + 16}, fitted(frame.title, 11, box.width - 16),
                   {.size = 11, .fill = pale});
    }
    for (const CardFrame& inner : frame.inner) paint(inner, {box.x, box.y});
    for (const CoreCell& cell : frame.cells) paint(cell, {box.x, box.y});
    for (const DeviceChip& chip : frame.chips) paint(chip, {box.x, box.y});
  }

  std::map<int, LabelPosition> take_spots() { return std::move(spots_); }

 private:
  // Returns the colour of the members that may run on a hardware thread; it is empty if there is none.
  std::string_view colour_of_pu(int pu) const {
    const auto found = places_of_.find(pu);
    if (found == places_of_.end()) return {};
    if (found->second.size() > 1) return shared;
    const std::vector<int>& ranks = by_place_.at(found->second.front());
    return ranks.size() > 1 ? shared : member_colour(topology_.index_in_node(ranks.front()));
  }

  std::string_view colour_of(const CoreCell& cell) const {
    std::string_view colour;
    for (const int core : cell.cores) {
      for (const int pu : pus_of_.at(core)) {
        const std::string_view own = colour_of_pu(pu);
        if (own.empty() || own == colour) continue;
        colour = colour.empty() ? own : shared;
      }
    }
    return colour;
  }

  std::string tip_of(const CoreCell& cell) const {
    IndexSet cpus;
    std::set<int> places;
    for (const int core : cell.cores) {
      for (const int pu : pus_of_.at(core)) {
        cpus.insert(machine_.pus.at(static_cast<std::size_t>(pu)).os_index);
        if (const auto found = places_of_.find(pu); found != places_of_.end())
          places.insert(found->second.begin(), found->second.end());
      }
    }
    std::vector<int> ranks;
    for (const int place : places) ranks.insert(ranks.end(), by_place_.at(place).begin(), by_place_.at(place).end());
    std::ranges::sort(ranks);
    const std::string who =
        ranks.empty() ? "no member" : text(ranks.size() == 1 ? "rank " : "ranks ", fold_numbers(ranks));
    return text(cell.cores.size() == 1 ? "core " : "cores ", fold_numbers(cell.cores), ", CPU ", fold_numbers(cpus),
                ": ", who);
  }

  void paint(const CoreCell& cell, ScenePoint at) {
    const SceneBox box = moved(cell.box, at);
    const std::string_view colour = colour_of(cell);
    scene_.rectangle(SceneLayer::cells, box, 6, {.fill = "#ffffff", .stroke = colour.empty() ? "#d5dde7" : "#ffffff"},
                     tip_of(cell));
    if (!colour.empty()) {
      const Paint tint{.fill = colour, .stroke = colour, .stroke_width = 0.8, .opacity = 0.16};
      scene_.rectangle(SceneLayer::cells, box, 6, tint, tip_of(cell));
    }
    if (cell.cores.size() == 1) paint_threads(cell, box);
    if (cell.cores.size() > 1 && cell.ranks.empty()) {
      scene_.words(SceneLayer::cells, {box.middle_x(), box.middle_y() + 3}, text("×", cell.cores.size()),
                   {.size = 9, .fill = pale, .anchor = "middle"});
    }
    for (const RankLabel& label : cell.labels) paint(label, box);
    if (cell.labels.size() < cell.ranks.size()) {
      scene_.words(SceneLayer::dots, {box.right() - 3, box.bottom() - 2},
                   text("+", cell.ranks.size() - cell.labels.size()),
                   {.size = 8, .fill = ink, .bold = true, .anchor = "end"});
    }
  }

  // Draws a short bar for each hardware thread, in the colour of the members that may run there.
  void paint_threads(const CoreCell& cell, const SceneBox& box) {
    const std::vector<int>& pus = pus_of_.at(cell.cores.front());
    constexpr std::size_t most = 8;
    if (pus.size() < 2 || pus.size() > most) return;
    const double step = (box.width - 8) / static_cast<double>(pus.size());
    for (std::size_t i = 0; i < pus.size(); ++i) {
      const std::string_view colour = colour_of_pu(pus[i]);
      scene_.rectangle(SceneLayer::cells,
                       {box.x + 4 + static_cast<double>(i) * step + 1, box.bottom() - 5, step - 2, 2.5}, 1,
                       {.fill = colour.empty() ? "#d5dde7" : colour, .opacity = 0.7});
    }
  }

  void paint(const RankLabel& label, const SceneBox& cell) {
    const SceneBox box = moved(label.box, {cell.x, cell.y});
    const int index = topology_.index_in_node(label.rank);
    const std::string_view colour = member_colour(index);
    const bool alone = by_place_.at(topology_.member(label.rank).place).size() == 1;
    const double radius = std::min(box.width, box.height) / 2;
    if (index == 0) {
      scene_.rectangle(SceneLayer::dots, {box.x - 2.5, box.y - 2.5, box.width + 5, box.height + 5}, radius + 2.5,
                       {.fill = "#ffffff", .stroke = ink, .stroke_width = 1.6});
    }
    if (alone) {
      scene_.rectangle(SceneLayer::dots, box, radius, {.fill = colour}, tip_of_rank(label.rank));
    } else {
      scene_.rectangle(SceneLayer::dots, {box.x + 0.6, box.y + 0.6, box.width - 1.2, box.height - 1.2}, radius,
                       {.fill = "#ffffff", .stroke = colour, .stroke_width = 1.4}, tip_of_rank(label.rank));
    }
    const std::string words = text(label.rank);
    const double size = std::min(box.height * 0.62, (box.width - 4) / text_width(words, 1, true));
    scene_.words(SceneLayer::dots, {box.middle_x(), box.middle_y() + size * 0.36}, words,
                 {.size = size, .fill = alone ? "#ffffff" : colour, .bold = true, .anchor = "middle"});
    scene_.add_label({label.rank, box});
    spots_[label.rank] = {box, cell};
  }

  std::string tip_of_rank(int rank) const {
    const Place& place = topology_.place_of(rank);
    IndexSet cpus;
    for (const int pu : place.pus.members()) cpus.insert(machine_.pus.at(static_cast<std::size_t>(pu)).os_index);
    const std::string leader = topology_.index_in_node(rank) == 0 ? ", leader of its node" : "";
    const std::string quota = place.cpu_quota > 0 ? text(", quota ", place.cpu_quota, " cores") : "";
    return text("rank ", rank, leader, ": CPUs ", fold_numbers(cpus), quota);
  }

  void paint(const DeviceChip& chip, ScenePoint at) {
    const SceneBox box = moved(chip.box, at);
    const std::string_view edge = chip.gpu ? "#86d3ae" : "#9cc3f2";
    const std::string_view dark = chip.gpu ? "#05603f" : "#1b4b8f";
    scene_.rectangle(SceneLayer::boxes, box, 6, {.fill = chip.gpu ? "#e9f9f1" : "#ecf4fe", .stroke = edge}, chip.tip);
    const double rate_width = chip.more.empty() ? 0 : text_width(chip.more, 10) + 6;
    scene_.words(SceneLayer::boxes, {box.x + 8, box.middle_y() + 4},
                 fitted(chip.words, 11, box.width - 12 - rate_width, true), {.size = 11, .fill = dark, .bold = true});
    scene_.words(SceneLayer::boxes, {box.right() - 8, box.middle_y() + 4}, chip.more,
                 {.size = 10, .fill = dark, .anchor = "end"});
    constexpr std::size_t most = 8;
    const std::size_t shown = std::min(chip.near.size(), most);
    for (std::size_t i = 0; i < shown; ++i) {
      const SceneBox dot{box.right() - 8 - 9 * static_cast<double>(shown - i), box.middle_y() - 3.5, 7, 7};
      const std::string_view colour = member_colour(topology_.index_in_node(chip.near[i]));
      scene_.rectangle(SceneLayer::boxes, dot, 3.5, {.fill = colour}, text("near to rank ", chip.near[i]));
    }
  }

  Scene& scene_;
  const Topology& topology_;
  const MachineShape& machine_;
  std::map<int, std::vector<int>> by_place_;   // ranks
  std::map<int, std::vector<int>> pus_of_;     // by core
  std::map<int, std::vector<int>> places_of_;  // by hardware thread
  std::map<int, LabelPosition> spots_;
};

}  // namespace

std::map<int, LabelPosition> NodeCard::draw(Scene& scene, const SceneBox& box, std::string_view title) const {
  const MachineShape& machine = topology_.machine_of_node(node_);
  scene.rectangle(SceneLayer::boxes, {box.x, box.y + 2, box.width, box.height}, 14,
                  {.fill = "#0f172a", .opacity = 0.06});
  scene.rectangle(SceneLayer::boxes, box, 14, {.fill = "#ffffff", .stroke = "#dbe2ea"});
  const auto ranks_on = topology_.ranks_of_node(node_);
  const std::string ranks = fold_numbers(ranks_on, 2);
  const double ranks_width = text_width(ranks, 12) + 50;
  scene.words(SceneLayer::boxes, {box.x + 16, box.y + 25}, fitted(title, 15, box.width - 32 - ranks_width, true),
              {.size = 15, .fill = ink, .bold = true});
  scene.words(SceneLayer::boxes, {box.right() - 16, box.y + 25}, text(ranks_on.size() == 1 ? "rank " : "ranks ", ranks),
              {.size = 12, .fill = pale, .anchor = "end"});
  const std::string memory = machine.memory_gib == 0 ? "" : text(" · ", machine.memory_gib, " GiB");
  scene.words(SceneLayer::boxes, {box.x + 16, box.y + 43},
              fitted(printable(machine.model) + memory, 11, box.width - 32), {.size = 11, .fill = pale});
  double y = box.y + 61;
  for (const std::string& note : notes_) {
    scene.words(SceneLayer::boxes, {box.x + 16, y}, fitted(note, 11, box.width - 32), {.size = 11, .fill = pale});
    y += 18;
  }
  Painter painter(scene, topology_, node_);
  painter.paint(machine_, {box.x, box.y});
  return painter.take_spots();
}

}  // namespace lockstep::command
