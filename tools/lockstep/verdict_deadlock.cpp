// SPDX-License-Identifier: Apache-2.0
// Finds circles of waits: one process waits on one communicator for a second, which waits on another communicator for
// the first.
#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "tools/lockstep/verdict.hpp"
#include "tools/lockstep/verdict_groups.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

// Links a member that waits in the last call of a communicator to one that has not begun it.
struct WaitEdge {
  const ObservedGroup* group;
  ObservedMember waits;
  ObservedMember late;
};

std::vector<WaitEdge> waits_of(const std::vector<ObservedGroup>& groups) {
  constexpr std::int64_t long_ms = 1000;
  std::vector<WaitEdge> all;
  for (const ObservedGroup& group : groups) {
    std::uint64_t last = 0;
    for (const auto& [rank, member] : group.members) last = std::max(last, member.seen->started);
    for (const auto& [rank, waiting] : group.members) {
      if (waiting.seen->started < last || !waiting.seen->is_in_call() || waiting.seen->waited_ms < long_ms) continue;
      for (const auto& [other, late] : group.members) {
        if (late.seen->started < last && !is_held(*late.process)) all.push_back({&group, waiting, late});
      }
    }
  }
  return all;
}

// Returns the shortest chain of waits from the awaited process back to the waiting one.
std::vector<const WaitEdge*> way_back(const std::vector<WaitEdge>& all, const WaitEdge& first) {
  std::map<const status::ProcessSnapshot*, const WaitEdge*> reached_by{{first.late.process, &first}};
  std::deque<const status::ProcessSnapshot*> next{first.late.process};
  while (!next.empty()) {
    const status::ProcessSnapshot* const here = next.front();
    next.pop_front();
    for (const WaitEdge& wait : all) {
      if (wait.waits.process != here) continue;
      if (wait.late.process == first.waits.process) {
        std::vector<const WaitEdge*> way{&wait};
        while (way.back() != &first) way.push_back(reached_by.at(way.back()->waits.process));
        std::ranges::reverse(way);
        return way;
      }
      if (reached_by.try_emplace(wait.late.process, &wait).second) next.push_back(wait.late.process);
    }
  }
  return {};
}

}  // namespace

std::string deadlock_text(const std::vector<ObservedGroup>& groups) {
  const std::vector<WaitEdge> all = waits_of(groups);
  std::vector<const WaitEdge*> best;
  for (const WaitEdge& wait : all) {
    auto way = way_back(all, wait);
    if (!way.empty() && (best.empty() || way.size() < best.size())) best = std::move(way);
  }
  if (best.empty()) return {};
  std::vector<std::string> parts;
  std::set<std::string> names;
  for (const WaitEdge* const each : best) {
    const status::CommunicatorSnapshot& seen = *each->waits.seen;
    names.insert(text('"', each->group->name, '"'));
    parts.push_back(text("process ", each->waits.process->process, ", rank ", seen.rank, " of \"", each->group->name,
                         "\", waits in ", call_text(seen, seen.current()), " for rank ", each->late.seen->rank,
                         ", process ", each->late.process->process));
  }
  return text("a circle: ", join(parts, "; "), " -> let all members make their calls on ",
              join(std::vector<std::string>(names.begin(), names.end()), " and "), " in one order");
}

}  // namespace lockstep::command
