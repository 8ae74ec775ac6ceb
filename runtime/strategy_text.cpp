// SPDX-License-Identifier: Apache-2.0
// Describes a strategy in texts, and finds devices by name.
#include <algorithm>

#include "collectives/communicator/communicator.hpp"
#include "runtime/strategy.hpp"

namespace lockstep {

std::string Strategy::describe() const { return text(name_, " with ", size_, size_ == 1 ? " replica" : " replicas"); }

// Returns "('a', 'b')", "('a',)" or "['a']", as Python prints them.
std::string Strategy::devices_text(char open, char close) const {
  const std::vector<std::string> all = devices();
  return text(open, '\'', join(all, "', '"), all.size() == 1 && open == '(' ? "'," : "'", close);
}

DeviceName Strategy::device(int local) const {
  const auto i = static_cast<std::size_t>(local);
  return {.job = home_.job,
          .task = home_.task,
          .type = placements_.empty() ? "CPU" : placements_[i].device.type,
          .index = placements_.empty() ? local : placements_[i].device.index};
}

std::optional<int> Strategy::local_on(std::string_view device) const {
  for (int local = 0; local < num_local_replicas(); ++local) {
    if (is_meant(device, this->device(local))) return local;
  }
  return std::nullopt;
}

bool Strategy::is_elsewhere(std::string_view device) const {
  DeviceName there = parse_device(device);
  there.job = home_.job;
  there.task = home_.task;
  if (is_meant(device, there)) return false;
  for (there.task = 0; there.task < tasks_; ++there.task) {
    if (is_meant(device, there)) return true;
  }
  return false;
}

std::vector<std::string> Strategy::devices() const {
  std::vector<std::string> all;
  all.reserve(replicas_.size());
  for (int local = 0; local < num_local_replicas(); ++local) all.push_back(to_string(device(local)));
  return all;
}

std::string Strategy::explain() const {
  std::string all = describe();
  for (const ReplicaContext& each : replicas_) {
    const auto local = static_cast<std::size_t>(each.local_id());
    all += text("\n  replica ", each.replica_id_in_sync_group(), " on ", devices()[local], ": ",
                placements_.empty() ? std::string("wherever this process may run") : placements_[local].place);
  }
  if (communicators_.empty() || communicators_.front()->failed()) return all;
  all += text("\n  communication ", to_string(communication().implementation), ": ", communication_choice_.why);
  constexpr std::size_t sizes[] = {1, 16U << 10U, 4U << 20U};
  const std::unique_ptr<float[]> space(new float[std::end(sizes)[-1]]);  // Is memory for plans, and is never touched.
  for (const std::size_t count : sizes) {
    const PreparedCall plan = communicators_.front()->plan_all_reduce(std::span(space.get(), count), sum);
    all += text("\n    all_reduce of ", format_bytes(count * sizeof(float)), ": ", plan.algorithm(), ", ", plan.why());
  }
  return all;
}

void Strategy::log_communication_choice() const {
  if (communication_choice_.is_requested || replicas_.front().replica_id_in_sync_group() != 0) return;
  log().warn(text(describe(), " does not do what communication = ", to_string(communication().implementation),
                  " says: ", communication_choice_.why));
}

CommunicationOptions Strategy::communication_with(const CommunicationOptions& call) {
  const auto wished = call.checked().implementation;
  const bool differs = wished != CommunicationImplementation::automatic && wished != communication().implementation;
  if (differs && !warned_.exchange(true))
    log().warn(text(describe(), ": a call asks for communication = ", to_string(wished),
                    ", which is for StrategyOptions to say; it goes by ", to_string(communication().implementation)));
  return communication().merged(call);
}

}  // namespace lockstep
