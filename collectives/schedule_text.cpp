// SPDX-License-Identifier: Apache-2.0
// Prints schedules for people.
#include "collectives/schedule.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string to_text(const Slice& slice) {
  constexpr std::string_view names[] = {"in", "out", "tmp"};
  return text(names[static_cast<std::size_t>(slice.space)], '[', slice.offset, ',', slice.offset + slice.count, ')');
}

namespace {

std::string to_text(const MovingSlice& moving_slice, int times) {
  std::string first = lockstep::to_text(moving_slice.at(0));
  if (times < 2 || moving_slice.at(0) == moving_slice.at(1)) return first;
  return text(first, "..", lockstep::to_text(moving_slice.at(times - 1)));
}

std::string to_text(std::string_view arrow, const Message& message, int times) {
  std::string peer = text(arrow, message.peer_at(0));
  if (times > 1 && message.peer_step != 0) peer += text("..", message.peer_at(times - 1));
  return text(peer, ' ', to_text(message.slice, times), message.narrow ? " narrow" : "");
}

std::string to_text(const LocalStep& local, int times) {
  const std::string target = to_text(local.target, times);
  if (local.kind == LocalStepKind::copy) return text(target, " = ", to_text(local.left, times));
  if (local.kind == LocalStepKind::round) return text(target, " = rounded");
  return text(target, " = ", to_text(local.left, times), " op ", to_text(local.right, times));
}

// Returns text such as "node reduce_scatter_v of 0 1 2: in[0,12) to out[0,4)".
std::string to_text(const IntraNodeStep& node_step) {
  std::string all = text("node ", to_string(node_step.collective), " of");
  for (const int member : node_step.members) all += text(' ', member);
  if (is_rooted(node_step.collective))
    all += text(", root ", node_step.members[static_cast<std::size_t>(node_step.root)]);
  if (node_step.from.count > 0) all += text(": ", lockstep::to_text(node_step.from));
  if (node_step.to.count > 0) all += text(node_step.from.count > 0 ? " to " : ": to ", lockstep::to_text(node_step.to));
  return all;
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string all;
  for (const Round& round : schedule.rounds) {
    std::vector<std::string> parts;
    for (const Message& message : round.sends) parts.push_back(to_text("->", message, round.times));
    for (const Message& message : round.receives) parts.push_back(to_text("<-", message, round.times));
    for (const LocalStep& local : round.locals) parts.push_back(to_text(local, round.times));
    for (const IntraNodeStep& node_step : round.node_steps) parts.push_back(to_text(node_step));
    all += text(round.times, "x  ", join(parts, "  "), '\n');
  }
  return all;
}

}  // namespace lockstep
