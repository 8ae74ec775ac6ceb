// SPDX-License-Identifier: Apache-2.0
// Divides machines from their largest parts down to hardware threads.
#include "topology/machine_pieces.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct MachineLevel {
  int Pu::*of;
  std::string_view name;
};
// Lists the parts of a machine from the largest to the smallest. Hardware threads come after them.
constexpr std::array levels = {MachineLevel{&Pu::package, "package"}, MachineLevel{&Pu::numa, "NUMA node"},
                               MachineLevel{&Pu::l3, "L3 cache"}, MachineLevel{&Pu::l2, "L2 cache"},
                               MachineLevel{&Pu::core, "core"}};

class Division {
 public:
  Division(const MachineShape& machine, const IndexSet& allowed) : machine_(machine), allowed_(allowed) {}

  // Divides `part`, which is all of the allowed hardware threads or some.
  std::vector<MachinePiece> among(int pieces, const IndexSet& part) {
    share_out(part.members(), pieces);
    return std::move(found_);
  }

 private:
  using Pus = std::vector<int>;

  // Splits into the largest parts of which there are several, or else into single hardware threads.
  std::vector<Pus> parts_of(const Pus& pus) const {
    std::vector<Pus> parts;
    for (const MachineLevel& level : levels) {
      parts.clear();
      std::vector<int> numbers;
      for (const int pu : pus) {
        const int number = machine_.pus[static_cast<std::size_t>(pu)].*level.of;
        const auto at = std::ranges::find(numbers, number) - numbers.begin();
        if (at == static_cast<std::ptrdiff_t>(numbers.size())) {
          numbers.push_back(number);
          parts.emplace_back();
        }
        parts[static_cast<std::size_t>(at)].push_back(pu);
      }
      if (parts.size() > 1) return parts;
    }
    parts.clear();
    for (const int pu : pus) parts.push_back({pu});
    return parts;
  }

  // Gives each part pieces by its number of hardware threads. With more parts than pieces, each piece gets parts.
  void share_out(const Pus& pus, int pieces) {
    if (pieces == 0) return;
    if (pieces == 1) return add(pus);
    const std::vector<Pus> parts = parts_of(pus);
    if (parts.size() == 1) {
      for (int i = 0; i < pieces; ++i) add(pus);
      return;
    }
    const auto bound = [&](std::size_t before, std::size_t all, std::size_t number) {
      return (before * number + all / 2) / all;
    };
    if (parts.size() <= static_cast<std::size_t>(pieces)) {
      std::size_t before = 0;
      std::size_t given = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        before += parts[i].size();
        // Each part gets at least one piece, and leaves one for each part behind it.
        const std::size_t left = parts.size() - i - 1;
        const std::size_t all = static_cast<std::size_t>(pieces);
        const std::size_t end = std::clamp(bound(before, pus.size(), all), given + 1, all - left);
        share_out(parts[i], static_cast<int>(end - given));
        given = end;
      }
      return;
    }
    give_parts(parts, pus.size(), static_cast<std::size_t>(pieces));
  }

  // Gives each piece a run of parts, if there are more parts than pieces. It cuts where the hardware threads so far
  // come nearest to a piece's share.
  void give_parts(const std::vector<Pus>& parts, std::size_t threads, std::size_t pieces) {
    std::size_t part = 0;
    std::size_t before = 0;
    for (std::size_t piece = 1; piece <= pieces; ++piece) {
      Pus mine;
      const std::size_t left = pieces - piece;
      while (part < parts.size() - left) {
        const std::size_t length = parts[part].size();
        if (!mine.empty() && left > 0 && (2 * before + length) * pieces > 2 * piece * threads) break;
        mine.insert(mine.end(), parts[part].begin(), parts[part].end());
        before += length;
        ++part;
      }
      add(mine);
    }
  }

  void add(const Pus& pus) {
    MachinePiece piece;
    for (const int pu : pus) piece.pus.insert(pu);
    piece.name = name_of(piece.pus);
    found_.push_back(std::move(piece));
  }

  // Names the piece by the largest part that it is exactly, counting allowed hardware threads, or else by the system's
  // numbers.
  std::string name_of(const IndexSet& pus) const {
    for (const MachineLevel& level : levels) {
      const int number = machine_.pus[static_cast<std::size_t>(pus.first())].*level.of;
      if (number == none) continue;
      IndexSet whole;
      for (const int pu : allowed_.members()) {
        if (machine_.pus[static_cast<std::size_t>(pu)].*level.of == number) whole.insert(pu);
      }
      if (whole == pus) return text(level.name, ' ', number);
    }
    IndexSet by_system;
    for (const int pu : pus.members()) by_system.insert(machine_.pus[static_cast<std::size_t>(pu)].os_index);
    return text(by_system.size() == 1 ? "hardware thread " : "hardware threads ", by_system.to_string());
  }

  const MachineShape& machine_;
  IndexSet allowed_;
  std::vector<MachinePiece> found_;
};

// Returns the allowed hardware threads in the NUMA node of a GPU, or else in its package.
IndexSet near(const MachineShape& machine, const IndexSet& allowed, const std::string& bus) {
  const auto gpu = std::ranges::find(machine.gpus, bus, &Gpu::bus);
  if (bus.empty() || gpu == machine.gpus.end()) return {};
  IndexSet pus;
  for (const int each : allowed.members()) {
    const Pu& pu = machine.pus[static_cast<std::size_t>(each)];
    const bool by_numa = gpu->numa != none;
    const int place = by_numa ? gpu->numa : gpu->package;
    if (place != none && (by_numa ? pu.numa : pu.package) == place) pus.insert(each);
  }
  return pus;
}

}  // namespace

std::vector<MachinePiece> divide_by_device(const MachineShape& machine, const IndexSet& allowed,
                                           const std::vector<std::string>& gpus) {
  std::vector<IndexSet> places;
  places.reserve(gpus.size());
  for (const std::string& each : gpus) places.push_back(near(machine, allowed, each));
  std::vector<MachinePiece> pieces(gpus.size());
  for (std::size_t first = 0; first < gpus.size(); ++first) {
    if (places[first].empty() || !pieces[first].pus.empty()) continue;
    const auto number = static_cast<int>(std::ranges::count(places, places[first]));
    const auto found = Division(machine, allowed).among(number, places[first]);
    auto next = found.begin();
    for (std::size_t i = first; i < gpus.size(); ++i) {
      if (places[i] == places[first]) pieces[i] = *next++;
    }
  }
  return pieces;
}

std::vector<MachinePiece> divide(const MachineShape& machine, const IndexSet& allowed, int pieces) {
  if (allowed.empty() || pieces < 1)
    throw Error(Code::internal, text("a machine with ", allowed.size(), " hardware threads in ", pieces, " pieces"));
  return Division(machine, allowed).among(pieces, allowed);
}

}  // namespace lockstep
