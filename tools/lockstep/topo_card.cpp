// SPDX-License-Identifier: Apache-2.0
// Arranges a card: sizes and places. topo_card_paint.cpp draws it.
#include "tools/lockstep/topo_card.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr double pad = 10;
constexpr double title_height = 20;
constexpr double chip_width = 138;
constexpr double chip_height = 24;
constexpr double chip_gap = 6;
constexpr double frame_gap = 10;
constexpr double head_height = 44;
constexpr double note_height = 18;
constexpr double least_label_height = 15;
constexpr double label_gap = 3;
constexpr std::size_t most_labels = 64;  // in a cell; with very many members there is one
constexpr std::size_t very_many = 512;
constexpr std::size_t most_cells = 256;

std::string frame_title(const MachineShape& machine, const MachinePart& part) {
  std::vector<std::string> words;
  for (const PartName& name : part.names) {
    if (name.number == none) continue;
    if (name.level == PartLevel::package) words.push_back(text("package ", name.number));
    if (name.level == PartLevel::numa) words.push_back(text("NUMA ", name.number));
    if (name.level == PartLevel::l3)
      words.push_back(machine.l3_bytes == 0 ? "L3" : text("L3 ", format_bytes(machine.l3_bytes)));
  }
  return join(words, " · ");
}

// Returns columns for a block about twice as wide as high. It avoids a ragged last row if that changes little.
std::size_t columns_for(std::size_t count) {
  if (count <= 4) return count;
  const double ideal = std::sqrt(2.0 * static_cast<double>(count));
  std::size_t best = static_cast<std::size_t>(std::ceil(ideal));
  double best_off = 1.8;
  for (std::size_t columns = 2; columns <= 16 && columns <= count; ++columns) {
    if (count % columns != 0) continue;
    const double off = std::max(static_cast<double>(columns) / ideal, ideal / static_cast<double>(columns));
    if (off < best_off) best = columns;
    best_off = std::min(best_off, off);
  }
  return best;
}

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

std::string_view member_colour(int index_in_node) {
  constexpr std::array<std::string_view, 16> colours = {
      "#2563eb", "#ea580c", "#059669", "#db2777", "#7c3aed", "#0e7490", "#b45309", "#dc2626",
      "#4d7c0f", "#0d9488", "#a21caf", "#475569", "#78350f", "#166534", "#1e3a8a", "#831843"};
  return colours.at(static_cast<std::size_t>(index_in_node) % colours.size());
}

namespace {

class CardLayout {
 public:
  CardLayout(const Topology& topology, int node, double cell)
      : topology_(topology), node_(node), machine_(topology.machine_of_node(node)) {
    share_cores();
    find_homes();
    size_cells(cell);
  }

  CardFrame arrange(double width) {
    const MachinePart whole = parts_of(machine_);
    CardFrame frame = lay_out(whole, width, 0);
    if (!whole.names.empty()) {  // a machine of one package: its box stands in a frame like the others
      CardFrame outer;
      outer.box = frame.box;
      outer.inner.push_back(std::move(frame));
      frame = std::move(outer);
    }
    std::vector<DeviceChip> loose = chips_of(none);
    add_chips(frame, std::move(loose), 0, 0);
    return frame;
  }

 private:
  // Lets several cores share a cell if there are too many.
  void share_cores() { cores_per_cell_ = divide_up(static_cast<std::size_t>(machine_.cores()), most_cells); }

  std::vector<int> cores_of(const Place& place) const {
    std::vector<int> cores;
    for (const int pu : place.pus.members()) {
      const int core = machine_.pus.at(static_cast<std::size_t>(pu)).core;
      if (cores.empty() || cores.back() != core) cores.push_back(core);
    }
    return cores;
  }

  // Places a member's label on one of its cores. Members of one place are spread over its cores.
  void find_homes() {
    std::map<int, std::vector<int>> by_place;
    for (const int rank : topology_.ranks_of_node(node_)) by_place[topology_.member(rank).place].push_back(rank);
    for (const auto& [place, ranks] : by_place) {
      const std::vector<int> cores = cores_of(topology_.place_of(ranks.front()));
      for (std::size_t i = 0; i < ranks.size(); ++i) homes_[cores[i * cores.size() / ranks.size()]].push_back(ranks[i]);
    }
  }

  std::vector<CoreCell> cells_of(const MachinePart& part) const {
    std::vector<CoreCell> cells;
    for (std::size_t begin = 0; begin < part.cores.size(); begin += cores_per_cell_) {
      CoreCell cell;
      for (std::size_t i = begin; i < std::min(begin + cores_per_cell_, part.cores.size()); ++i) {
        const int core = part.cores[i];
        cell.cores.push_back(core);
        if (const auto home = homes_.find(core); home != homes_.end()) {
          cell.ranks.insert(cell.ranks.end(), home->second.begin(), home->second.end());
        }
      }
      cells.push_back(std::move(cell));
    }
    return cells;
  }

  static std::size_t crowd_of(const std::vector<CoreCell>& cells) {
    std::size_t crowd = 0;
    for (const CoreCell& cell : cells) crowd = std::max(crowd, cell.ranks.size());
    return crowd;
  }

  std::size_t crowd_in(const MachinePart& part) const {
    if (part.parts.empty()) return crowd_of(cells_of(part));
    std::size_t crowd = 0;
    for (const MachinePart& each : part.parts) crowd = std::max(crowd, crowd_in(each));
    return crowd;
  }

  std::size_t digits() const {
    const auto ranks = topology_.ranks_of_node(node_);
    return text(*std::ranges::max_element(ranks)).size();
  }

  // Sizes the cells of a card: all are equal, and large enough for the most crowded one.
  void size_cells(double side) {
    most_labels_ = topology_.ranks_of_node(node_).size() > very_many ? 1 : most_labels;
    crowd_ = std::min(crowd_in(parts_of(machine_)), most_labels_);
    const auto rows = static_cast<double>(divide_up(crowd_, std::max<std::size_t>(label_columns(crowd_), 1)));
    label_height_ = std::clamp((side - 12) / std::max(rows, 1.0) - label_gap, least_label_height, 24.0);
    const ScenePoint block = crowd_ < 2 ? ScenePoint{} : block_of(crowd_);
    cell_width_ = std::max(side, block.x + 8);
    cell_height_ = std::max(side, block.y + 12);
  }

  double small_label_width() const {
    return std::max(label_height_, text_width(std::string(digits(), '0'), label_height_ * 0.62, true) + 8);
  }

  static std::size_t label_columns(std::size_t count) {
    return static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(count))));
  }

  // Returns the size of that many small labels, side by side and below each other.
  ScenePoint block_of(std::size_t count) const {
    const std::size_t columns = label_columns(count);
    return {static_cast<double>(columns) * (small_label_width() + label_gap) - label_gap,
            static_cast<double>(divide_up(count, columns)) * (label_height_ + label_gap) - label_gap};
  }

  void place_labels(CoreCell& cell) const {
    const SceneBox& box = cell.box;
    const std::size_t count = std::min(cell.ranks.size(), most_labels_);
    if (crowd_ < 2 && count == 1) {
      const double side = std::min(std::min(box.width, box.height) * 0.62, 44.0);
      const double wide = std::min(box.width - 2, text_width(std::string(digits(), '0'), side * 0.46, true) + 6);
      const double width = std::max(side, wide);
      cell.labels.push_back({cell.ranks[0], {(box.width - width) / 2, (box.height - side) / 2 - 2, width, side}});
      return;
    }
    if (count == 0) return;
    const ScenePoint block = block_of(count);
    for (std::size_t i = 0; i < count; ++i) {
      const ScenePoint place = grid_place(i, label_columns(count));
      const double x = (box.width - block.x) / 2 + place.x * (small_label_width() + label_gap);
      const double y = (box.height - block.y) / 2 - 2 + place.y * (label_height_ + label_gap);
      cell.labels.push_back({cell.ranks[i], {x, y, small_label_width(), label_height_}});
    }
  }

  CardFrame lay_out(const MachinePart& part, double width, int depth) {
    CardFrame frame;
    frame.title = frame_title(machine_, part);
    frame.depth = depth;
    const bool bare = part.names.empty();
    const double side = bare ? 0 : pad;
    const double top = bare ? 0 : title_height + 4;
    std::vector<DeviceChip> chips;
    for (const PartName& name : part.names) {
      if (name.level == PartLevel::package) chips = chips_of(name.number);
    }
    const double free = width - 2 * side - (chips.empty() ? 0 : chip_width + pad);
    if (part.parts.empty()) {
      place_cells(frame, cells_of(part), free, {side, top});
    } else {
      place_inner(frame, part, free, {side, top});
    }
    frame.box.width = std::max(frame.box.width, text_width(frame.title, 11)) + 2 * side;
    frame.box.height += top + side;
    add_chips(frame, std::move(chips), side, top);
    return frame;
  }

  void place_cells(CardFrame& frame, std::vector<CoreCell> cells, double width, ScenePoint at) const {
    const double step_x = cell_width_ + cell_gap;
    const double step_y = cell_height_ + cell_gap;
    const auto fitting = static_cast<std::size_t>(std::max(1.0, (width + cell_gap) / step_x));
    const std::size_t columns = std::min(columns_for(cells.size()), fitting);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const ScenePoint place = grid_place(i, columns);
      cells[i].box = {at.x + place.x * step_x, at.y + place.y * step_y, cell_width_, cell_height_};
      place_labels(cells[i]);
    }
    frame.box.width = static_cast<double>(columns) * step_x - cell_gap;
    frame.box.height = static_cast<double>(divide_up(cells.size(), columns)) * step_y - cell_gap;
    frame.cells = std::move(cells);
  }

  void place_inner(CardFrame& frame, const MachinePart& part, double width, ScenePoint at) {
    double most_width = 0;
    double most_height = 0;
    for (const MachinePart& each : part.parts) {
      frame.inner.push_back(lay_out(each, width, frame.depth + 1));
      most_width = std::max(most_width, frame.inner.back().box.width);
      most_height = std::max(most_height, frame.inner.back().box.height);
    }
    const std::size_t count = frame.inner.size();
    const auto fitting = static_cast<std::size_t>(std::max(1.0, (width + frame_gap) / (most_width + frame_gap)));
    const std::size_t rows = divide_up(count, std::min(fitting, count));
    const std::size_t columns = divide_up(count, rows);
    for (std::size_t i = 0; i < count; ++i) {
      const ScenePoint place = grid_place(i, columns);
      frame.inner[i].box = {at.x + place.x * (most_width + frame_gap), at.y + place.y * (most_height + frame_gap),
                            most_width, most_height};
    }
    frame.box.width = static_cast<double>(columns) * (most_width + frame_gap) - frame_gap;
    frame.box.height = static_cast<double>(rows) * (most_height + frame_gap) - frame_gap;
  }

  // Places chips to the right of the frame's content, in as many columns as its height needs.
  static void add_chips(CardFrame& frame, std::vector<DeviceChip> chips, double side, double top) {
    if (chips.empty()) return;
    constexpr double step = chip_height + chip_gap;
    const double height = std::max(frame.box.height - top - side, 4 * step);
    const std::size_t rows = std::min(chips.size(), static_cast<std::size_t>((height + chip_gap) / step));
    const double left = frame.box.width - side + (frame.box.width > 0 ? pad : 0);
    for (std::size_t i = 0; i < chips.size(); ++i) {
      const ScenePoint place = grid_place(i, rows);  // column after column
      chips[i].box = {left + place.y * (chip_width + chip_gap), top + place.x * step, chip_width, chip_height};
    }
    frame.box.width = chips.back().box.right() + side;
    frame.box.height = std::max(frame.box.height, top + static_cast<double>(rows) * step - chip_gap + side);
    frame.chips = std::move(chips);
  }

  // Returns GPUs and interfaces at a package, or those without a place in the machine.
  std::vector<DeviceChip> chips_of(int package) const {
    std::vector<DeviceChip> chips;
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
      const Gpu& gpu = machine_.gpus[i];
      if (gpu.package != package) continue;
      const std::string tip = text(printable(gpu.name), gpu.bus.empty() ? "" : " at ", printable(gpu.bus));
      chips.push_back({.words = text("GPU ", i),
                       .more = "",
                       .tip = tip,
                       .gpu = true,
                       .near = near(static_cast<int>(i)),
                       .box = {}});
    }
    for (const Nic& nic : machine_.nics) {
      if (nic.package != package) continue;
      const std::string rate = nic.mbit_per_s == 0 ? "" : format_rate(nic.mbit_per_s);
      chips.push_back({.words = printable(nic.name, 24),
                       .more = rate,
                       .tip = text(printable(nic.name), ": ", format_rate(nic.mbit_per_s)),
                       .gpu = false,
                       .near = {},
                       .box = {}});
    }
    return chips;
  }

  std::vector<int> near(int gpu) const {
    std::vector<int> ranks;
    for (const int rank : topology_.ranks_of_node(node_)) {
      const auto gpus = topology_.closest_gpus(rank);
      if (std::ranges::find(gpus, gpu) != gpus.end()) ranks.push_back(rank);
    }
    return ranks;
  }

  const Topology& topology_;
  int node_;
  const MachineShape& machine_;
  std::size_t cores_per_cell_ = 1;
  std::map<int, std::vector<int>> homes_;  // by core
  std::size_t most_labels_ = most_labels;
  std::size_t crowd_ = 0;    // labels in the fullest cell
  double label_height_ = 0;  // if there are several in a cell
  double cell_width_ = 0;
  double cell_height_ = 0;
};

}  // namespace

NodeCard::NodeCard(const Topology& topology, int node, double cell, double width) : topology_(topology), node_(node) {
  constexpr double margin = 16;
  machine_ = CardLayout(topology, node, cell).arrange(width - 2 * margin);
  const MachineShape& machine = topology.machine_of_node(node);
  if (!machine.gpus.empty())
    notes_.push_back(gpu_names(machine) + (machine.gpus.size() > 1 ? text(": ", gpu_links(machine)) : ""));
  notes_.push_back(crowding(topology, node));
  double quota = 0;
  for (const int rank : topology.ranks_of_node(node)) quota = std::max(quota, topology.place_of(rank).cpu_quota);
  if (quota > 0) notes_.push_back(text("time of at most ", quota, " cores for a member (its control group's quota)"));
  machine_.box.x = margin;
  machine_.box.y = head_height + note_height * static_cast<double>(notes_.size()) + 10;
  width_ = std::max(machine_.box.width + 2 * margin, 270.0);
  height_ = machine_.box.bottom() + margin;
}

}  // namespace lockstep::command
