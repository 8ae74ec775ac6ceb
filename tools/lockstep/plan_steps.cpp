// SPDX-License-Identifier: Apache-2.0
// Walks through the schedules of all members in steps, and records each message.
#include "tools/lockstep/plan_steps.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace lockstep::command {
namespace {

struct ScheduleCursor {
  const Schedule* schedule;
  std::size_t round = 0;
  int lap = 0;
  int step = 1;         // the step in which the lap begins
  bool posted = false;  // its sends are on their way
  bool done() const { return round == schedule->rounds.size(); }
};

// Holds the steps of messages that were sent but not received yet, by sender and receiver.
using SendSteps = std::map<std::pair<int, int>, std::deque<int>>;

void post(ScheduleCursor& walker, int me, SendSteps& wires, std::vector<StepMessage>& all) {
  for (const Message& message : walker.schedule->rounds[walker.round].sends) {
    const Slice slice = message.slice.at(walker.lap);
    if (slice.count == 0) continue;
    const int peer = message.peer_at(walker.lap);
    wires[{me, peer}].push_back(walker.step);
    all.push_back({walker.step, me, peer, slice});
  }
  walker.posted = true;
}

// Ends the lap if everything that it receives was sent.
bool finish(ScheduleCursor& walker, int me, SendSteps& wires) {
  const Round& round = walker.schedule->rounds[walker.round];
  std::map<int, std::size_t> wanted;
  for (const Message& message : round.receives) {
    if (message.slice.at(walker.lap).count > 0) ++wanted[message.peer_at(walker.lap)];
  }
  for (const auto& [peer, count] : wanted) {
    if (wires[{peer, me}].size() < count) return false;
  }
  int ends = walker.step;
  for (const auto& [peer, count] : wanted) {
    auto& wire = wires[{peer, me}];
    for (std::size_t i = 0; i < count; ++i, wire.pop_front()) ends = std::max(ends, wire.front());
  }
  const bool moved = !round.sends.empty() || !round.receives.empty();
  walker.step = moved ? ends + 1 : walker.step;
  walker.posted = false;
  if (++walker.lap == round.times) {
    walker.lap = 0;
    ++walker.round;
  }
  return true;
}

}  // namespace

std::vector<StepMessage> step_messages(std::span<const Schedule> schedules, std::size_t most) {
  std::vector<ScheduleCursor> walkers;
  for (const Schedule& each : schedules) walkers.push_back({&each});
  SendSteps wires;
  std::vector<StepMessage> all;
  for (bool moves = true; moves && all.size() < 4 * most;) {
    moves = false;
    for (std::size_t i = 0; i < walkers.size(); ++i) {
      if (walkers[i].done()) continue;
      if (!walkers[i].posted) post(walkers[i], static_cast<int>(i), wires, all);
      moves = finish(walkers[i], static_cast<int>(i), wires) || moves;
    }
  }
  const auto place = [](const StepMessage& each) { return std::pair(each.step, each.from); };
  std::ranges::stable_sort(all, {}, place);
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace lockstep::command
