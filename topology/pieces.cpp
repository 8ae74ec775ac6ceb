// SPDX-License-Identifier: Apache-2.0
#include "topology/pieces.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct Level {
  int Pu::*of;
  std::string_view name;
};
// From the largest part of a machine to the smallest but hardware threads.
constexpr std::array levels = {Level{&Pu::package, "package"}, Level{&Pu::numa, "NUMA node"},
                               Level{&Pu::l3, "L3 cache"}, Level{&Pu::l2, "L2 cache"}, Level{&Pu::core, "core"}};

class Division {
 public:
  Division(const MachineShape& machine, const IndexSet& allowed) : machine_(machine), allowed_(allowed) {}

  std::vector<Piece> among(int pieces) {
    share_out(allowed_.members(), pieces);
    return std::move(found_);
  }

 private:
  using Pus = std::vector<int>;

  // Runs of what belongs to one part, by the largest parts of which there are several; by hardware threads at last.
  std::vector<Pus> parts_of(const Pus& pus) const {
    std::vector<Pus> parts;
    for (const Level& level : levels) {
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

  // Every part gets pieces by its number of hardware threads; with more parts than pieces, a piece gets parts.
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
        // None goes without, and enough is left for those that come.
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

  // More parts than pieces: runs of parts, cut where the hardware threads so far come nearest to a piece's share.
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
    Piece piece;
    for (const int pu : pus) piece.pus.insert(pu);
    piece.name = name_of(piece.pus);
    found_.push_back(std::move(piece));
  }

  // By the largest part that it is exactly, as far as that may be used.
  std::string name_of(const IndexSet& pus) const {
    for (const Level& level : levels) {
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
  std::vector<Piece> found_;
};

}  // namespace

std::vector<Piece> divide(const MachineShape& machine, const IndexSet& allowed, int pieces) {
  if (allowed.empty() || pieces < 1)
    throw Error(Code::internal, text("a machine with ", allowed.size(), " hardware threads in ", pieces, " pieces"));
  return Division(machine, allowed).among(pieces);
}

}  // namespace lockstep
