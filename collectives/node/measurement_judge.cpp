// SPDX-License-Identifier: Apache-2.0
// Holds the limits of a measurement that counts.
#include "collectives/node/measurement_judge.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

struct DoubtText {
  Doubt doubt;
  std::string_view word;
  std::string_view reason;
};
constexpr std::array texts = {
    DoubtText{Doubt::none, "none", "for no reason"},
    DoubtText{Doubt::stolen, "stolen", "because other virtual machines took time from the cores"},
    DoubtText{Doubt::off_core, "off_core", "because ranks had to leave their cores"},
    DoubtText{Doubt::switches, "switches", "because ranks were interrupted often"},
    DoubtText{Doubt::queue, "queue", "because more threads ran than there are cores"},
    DoubtText{Doubt::spread, "spread", "because its times differed too much"},
};

const DoubtText& text_of(Doubt doubt) { return texts.at(static_cast<std::size_t>(doubt)); }

}  // namespace

std::string_view to_word(Doubt doubt) { return text_of(doubt).word; }
std::string_view reason_of(Doubt doubt) { return text_of(doubt).reason; }

std::optional<Doubt> doubt_of(std::string_view word) {
  const auto* const found = std::ranges::find(texts, word, &DoubtText::word);
  return found == texts.end() ? std::nullopt : std::optional(found->doubt);
}

std::string to_text(const MeasurementConditions& conditions) {
  const auto figure = [](double value, double scale) {
    return value == Load::unknown ? std::string("unknown") : text(std::round(value * scale * 10) / 10);
  };
  const Load& load = conditions.load;
  return text(figure(load.stolen, 100), " % stolen, ", figure(load.off_core, 100), " % off the core, ",
              figure(load.switches, 1), " interruptions a second, ", figure(load.queue, 1), " threads on ",
              conditions.processors, " processors, times within ", figure(conditions.spread - 1, 100), " %");
}

// On a virtual machine of 2 cores, quiet jobs of 2 ranks had 0.2 to 0.6 % off the core, 35 to 85 interruptions a second
// and a spread of 1.05 to 1.14; beside a process that burns a core, 88 % off the core or more. Of 4 ranks on 2 cores
// the quiet spread was 1.11 to 1.15.
Doubt judge(const MeasurementConditions& conditions) {
  constexpr double most_stolen = 0.02;
  constexpr double most_off_core = 0.05;
  constexpr double most_switches = 200;  // per second
  constexpr double most_spread = 1.3;
  constexpr double most_crowded_spread = 1.5;
  const Load& load = conditions.load;
  if (load.stolen > most_stolen) return Doubt::stolen;
  if (!conditions.crowded && load.off_core > most_off_core) return Doubt::off_core;
  if (!conditions.crowded && load.switches > most_switches) return Doubt::switches;
  if (load.queue > std::max(conditions.members, conditions.processors)) return Doubt::queue;
  if (conditions.spread > (conditions.crowded ? most_crowded_spread : most_spread)) return Doubt::spread;
  return Doubt::none;
}

}  // namespace lockstep::node
