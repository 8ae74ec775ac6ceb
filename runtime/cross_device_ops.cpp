// SPDX-License-Identifier: Apache-2.0
// Implements the ways of combining replicas' values: in packs, by NCCL, level by level, and at one device.
#include "runtime/cross_device_ops.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/any_variable.hpp"
#include "runtime/packs.hpp"
#include "runtime/strategy_state.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Holds local replicas that meet at a level: `main` combines the values of the others.
struct LevelGroup {
  std::size_t main;
  std::vector<std::size_t> others;
};

// Returns the groups of a level, made of the `main` replicas of the level before. `turn` selects the main replica of
// each group.
std::vector<LevelGroup> groups_at(const detail::ReplicaLevel& level, const std::vector<std::vector<LevelGroup>>& before,
                                  int replicas, std::size_t turn) {
  std::vector<std::vector<std::size_t>> groups(static_cast<std::size_t>(replicas));
  const auto come = [&](std::size_t replica) {
    groups[static_cast<std::size_t>(level.groups[replica])].push_back(replica);
  };
  if (before.empty()) {
    for (std::size_t replica = 0; replica < groups.size(); ++replica) come(replica);
  } else {
    for (const LevelGroup& each : before.back()) come(each.main);
  }
  std::vector<LevelGroup> all;
  for (std::vector<std::size_t>& group : groups) {
    if (group.empty()) continue;
    const auto main = group.begin() + static_cast<std::ptrdiff_t>(turn % group.size());
    all.push_back({*main, {}});
    group.erase(main);
    all.back().others = std::move(group);
  }
  return all;
}

}  // namespace

const std::vector<detail::ReplicaLevel>& ReplicaGroup::levels() const {
  return detail::StrategyState::of(*strategy_).devices.levels();
}

bool ReplicaGroup::by_nccl() const { return detail::StrategyState::of(*strategy_).config.uses_nccl(); }

const std::string& ReplicaGroup::why() const { return detail::StrategyState::of(*strategy_).config.choice().why; }

void ReplicaGroup::announce(const std::string& line) const { detail::StrategyState::of(*strategy_).announce(line); }

std::string ReplicaGroup::devices_text() const { return detail::StrategyState::of(*strategy_).devices.to_text(); }

// Applies the call's timeout to all members until all have ended.
void ReplicaGroup::run_all(const detail::ReplicaCalls::Start& start) {
  std::vector<std::optional<detail::ScopedTimeout>> until_all_have_ended(static_cast<std::size_t>(local()));
  detail::ReplicaCalls::of(*strategy_)
      .run_all(
          [&](Communicator& member, int local) {
            until_all_have_ended[static_cast<std::size_t>(local)].emplace(member, options_.timeout);
            return start(member, local);
          },
          origin_, subject_);
}

// Combines all values in one batch for each member.
void ReplicaGroup::all_reduce(ReduceOp op, const std::vector<TensorViews>& values) {
  std::vector<std::optional<Batch>> batches(static_cast<std::size_t>(local()));
  run_all([&](Communicator& member, int local) {
    const auto i = static_cast<std::size_t>(local);
    Batch& batch = batches[i].emplace(member);
    for (const TensorViews& each : values) detail::add_view(batch, each[i], NamedOp(op), origin_);
    return batch.start(origin_);
  });
}

// Returns the lowest replica on the device. Processes agree by a minimum, since each sees only its own devices.
int ReplicaGroup::find(const std::string& device) {
  const std::optional<int> here = detail::StrategyState::of(*strategy_).devices.local_on(device);
  const int mine = here ? first() + *here : size();
  std::vector<int> all(static_cast<std::size_t>(local()), mine);
  run_all([&](Communicator& member, int local) {
    return member.all_reduce_async(std::span(&all[static_cast<std::size_t>(local)], 1), min, origin_);
  });
  if (all.front() == size())
    throw Error(Code::usage, text("no replica of ", strategy_->describe(), " is on the device ", printable(device)),
                text("in this process there are ", join(strategy_->devices(), ", ")));
  return all.front();
}

// Combines one value for each process, by their training channel.
void ReplicaGroup::all_reduce_of_processes(ReduceOp op, const TensorViews& values) {
  detail::ReplicaCalls::of(*strategy_).run_leader([&](Communicator& leader) {
    const detail::ScopedTimeout scoped_timeout(leader, options_.timeout);
    const detail::ScopedCallSubject scoped_subject(leader, subject_);
    Batch batch(leader);
    for (const TensorView& each : values) detail::add_view(batch, each, NamedOp(op), origin_);
    batch.run(origin_);
  });
}

// Returns the bytes of all replicas at the process of replica `at`; empty elsewhere.
std::vector<std::byte> ReplicaGroup::gather(const TensorViews& value, int at) {
  const std::size_t bytes = value.front().bytes();
  std::vector<std::byte> all(has(at) ? bytes * static_cast<std::size_t>(size()) : 0);
  run_all([&](Communicator& member, int local) {
    const TensorView& mine = value[static_cast<std::size_t>(local)];
    const std::span<const std::byte> part(static_cast<const std::byte*>(mine.data), bytes);
    const bool takes = first() + local == at;
    return member.gather_async(part, takes ? std::span<std::byte>(all) : std::span<std::byte>(), at, origin_);
  });
  return all;
}

// Each member writes all values. The first one writes the result; the others write memory of their own.
void ReplicaGroup::all_gather(const TensorViews& value, const std::vector<std::size_t>& counts, const TensorView& all) {
  const std::size_t each = size_of(all.type);
  std::vector<std::size_t> bytes;
  bytes.reserve(counts.size());
  for (const std::size_t count : counts) bytes.push_back(count * each);
  std::vector<std::vector<std::byte>> others(static_cast<std::size_t>(local()));
  run_all([&](Communicator& member, int local) {
    const TensorView& mine = value[static_cast<std::size_t>(local)];
    const std::span<const std::byte> part(static_cast<const std::byte*>(mine.data), mine.bytes());
    std::span<std::byte> whole(static_cast<std::byte*>(all.data), all.bytes());
    if (local > 0) {
      others[static_cast<std::size_t>(local)].resize(all.bytes());
      whole = others[static_cast<std::size_t>(local)];
    }
    return member.all_gather_v_async(part, whole, bytes, {}, origin_);
  });
}

void ReplicaGroup::broadcast(const TensorViews& value, int from) {
  run_all([&](Communicator& member, int local) {
    const TensorView& mine = value[static_cast<std::size_t>(local)];
    return member.broadcast_async(std::span<std::byte>(static_cast<std::byte*>(mine.data), mine.bytes()), from,
                                  origin_);
  });
}

void CrossDeviceOps::combine(Strategy& strategy, ReduceOp op, const std::vector<TensorViews>& values,
                             const CommunicationOptions& options, Origin origin, const detail::CallSubject& subject) {
  detail::CallSubject tagged = subject;
  if (tagged.tag == 0) tagged.tag = call_tag_of(strategy.communication_with(options).tag);
  ReplicaGroup group(strategy, options, origin, tagged);
  if (values.empty()) return;
  if (group.size() == 1) return log_path(group);  // A single replica's values are already combined.
  if (values.size() == 1)
    reduce_implementation(group, op, values.front());
  else
    batch_reduce_implementation(group, op, values);
}

void CrossDeviceOps::concatenate(Strategy& strategy, const TensorViews& value, const std::vector<std::size_t>& counts,
                                 const TensorView& all, Origin origin) {
  // Implementations gather bytes, so that members compare the type by the layout.
  const std::uint64_t layout = layout_of(Fingerprint().add(static_cast<std::uint64_t>(all.type)).value(), 1);
  ReplicaGroup group(strategy, {}, origin, {.layout = layout, .tag = call_tag_of(strategy.communication().tag)});
  gather_implementation(group, value, counts, all);
}

void CrossDeviceOps::broadcast_implementation(ReplicaGroup& /*group*/, const TensorView& value,
                                              const TensorViews& copies) {
  for (const TensorView& each : copies) detail::copy(each, value);
}

Destinations::Destinations(std::vector<std::string> devices) : devices_(std::move(devices)) {
  if (devices_.empty())
    throw Error(Code::usage, "destinations can not be empty", "name devices, or give none for all of the strategy's");
}

Destinations::Destinations(const AnyVariable& variable) : parts_(static_cast<int>(variable.layout().parts.size())) {}

namespace {

// Returns the first replica that uses the variables on a device. A device may have variables and no replica, such as
// the processor beside GPUs.
std::optional<int> user_of_variables_on(const Strategy& strategy, std::string_view device) {
  const VariableLayout layout = strategy.variable_layout({});
  const auto is_there = [&](const VariableLayout::Part& part) { return is_meant(device, parse_device(part.device)); };
  const auto part = std::ranges::find_if(layout.parts, is_there);
  return part == layout.parts.end() ? std::nullopt : std::optional(part->replica);
}

}  // namespace

std::vector<int> Destinations::places(const Strategy& strategy) const {
  const detail::ReplicaDevices& devices = detail::StrategyState::of(strategy).devices;
  std::vector<int> all;
  for (const std::string& each : devices_) {
    if (const std::optional<int> local = devices.local_on(each))
      all.push_back(*local);
    else if (const std::optional<int> user = user_of_variables_on(strategy, each))
      all.push_back(*user);
    else if (!devices.is_elsewhere(each))
      throw Error(Code::usage, text("no replica of ", strategy.describe(), " is on the destination ", printable(each)),
                  text("in this process there are ", join(strategy.devices(), ", ")));
  }
  if (!devices_.empty()) return all;
  if (is_value_) detail::check_parts(strategy, parts_);
  const int parts = parts_ > 0 ? parts_ : strategy.num_local_replicas();
  for (int local = 0; local < parts; ++local) all.push_back(local);
  return all;
}

std::vector<std::pair<std::size_t, std::size_t>> plan_packs(std::size_t count, int num_packs) {
  std::vector<std::pair<std::size_t, std::size_t>> packs;
  const auto number = static_cast<std::size_t>(std::max(1, num_packs));
  const std::size_t each = count / number;
  for (std::size_t i = 0; i < number; ++i) packs.emplace_back(i * each, i + 1 == number ? count : (i + 1) * each);
  return packs;
}

PackedOps::PackedOps(std::string name, int num_packs) : name_(std::move(name)), num_packs_(num_packs) {
  if (num_packs < 0)
    throw Error(Code::usage, text(name_, " with num_packs ", num_packs), "give a number of packs, or 0 for none");
}

std::string PackedOps::describe() const {
  return num_packs_ == 0 ? text(name_, " without packs")
                         : text(name_, " in ", num_packs_, num_packs_ == 1 ? " pack" : " packs");
}

// Logs once for each object, because every step would repeat the line.
void PackedOps::say(ReplicaGroup& group, const std::string& what) {
  if (!logged_) group.log().info(text(describe(), ": ", what));
  logged_ = true;
}

void PackedOps::reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) {
  reduce_pack(group, op, {value}, 0);
}

void PackedOps::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack,
                            std::size_t /*number*/) {
  group.all_reduce(op, pack);
}

// Combines the last values first, since their gradients are ready first.
void PackedOps::batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& values) {
  std::vector<TensorViews> order(values.rbegin(), values.rend());
  if (group.options().bytes_per_pack > 0) return reduce_by_bytes(group, op, order);
  if (num_packs_ == 0) {
    for (std::size_t i = 0; i < order.size(); ++i) reduce_pack(group, op, {order[i]}, i);
    return;
  }
  std::size_t count = 0;
  for (const TensorViews& each : order) count += each.front().count;
  std::size_t before = 0;  // Counts the elements before the value.
  std::size_t number = 0;
  auto value = order.begin();
  for (const auto& [first, end] : plan_packs(count, num_packs_)) {
    std::vector<TensorViews> pack;
    while (value != order.end() && before < end) {
      const std::size_t length = value->front().count;
      const std::size_t from = std::max(first, before) - before;
      const std::size_t to = std::min(end - before, length);
      TensorViews cut;
      for (const TensorView& each : *value) cut.push_back(each.part(from, to - from));
      if (to > from) pack.push_back(std::move(cut));
      if (before + length > end) break;
      before += length;
      ++value;
    }
    if (!pack.empty()) reduce_pack(group, op, pack, number);
    ++number;
  }
}

// Makes packs of about `bytes_per_pack`, without cutting a value.
void PackedOps::reduce_by_bytes(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& order) {
  std::vector<std::size_t> bytes;
  bytes.reserve(order.size());
  for (const TensorViews& each : order) bytes.push_back(each.front().bytes());
  std::size_t number = 0;
  for (const auto& [first, end] : plan_packs_of_bytes(bytes, group.options().bytes_per_pack))
    reduce_pack(group, op,
                {order.begin() + static_cast<std::ptrdiff_t>(first), order.begin() + static_cast<std::ptrdiff_t>(end)},
                number++);
}

void NcclAllReduce::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack,
                                std::size_t /*number*/) {
  say(group, group.by_nccl()
                 ? "data in GPU memory by NCCL, data in host memory by the node's shared memory or the network"
                 : text(group.why(), "; so not by NCCL but over the memory of the node or the network"));
  group.all_reduce(op, pack);
}

// Goes up the levels, then over the processes, then down in reverse order. The main replica of a group changes from
// value to value, so that all replicas share the work.
void HierarchicalCopyAllReduce::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack,
                                            std::size_t number) {
  const ReduceOp step = op == ReduceOp::avg ? ReduceOp::sum : op;
  const bool several = group.size() > group.local();
  std::vector<std::string> levels;
  for (const detail::ReplicaLevel& each : group.levels()) levels.push_back(each.name);
  if (several) levels.emplace_back("processes");
  say(group, text("replicas meet by ", join(levels, ", then by ")));
  std::vector<std::vector<std::vector<LevelGroup>>> groups(pack.size());  // Is indexed by value and level.
  TensorViews mains;
  for (std::size_t i = 0; i < pack.size(); ++i) {
    std::size_t main = 0;
    for (const detail::ReplicaLevel& level : group.levels()) {
      groups[i].push_back(groups_at(level, groups[i], group.local(), number + i));
      for (const LevelGroup& each : groups[i].back()) {
        for (const std::size_t other : each.others) detail::reduce_into(step, pack[i][each.main], pack[i][other]);
        traffic_at(level.name) += 2 * each.others.size() * pack[i].front().bytes();
        main = each.main;  // The last level has a single main replica.
      }
    }
    mains.push_back(pack[i][main]);
  }
  if (several) {
    group.all_reduce_of_processes(step, mains);
    for (const TensorView& each : mains) traffic_at("processes") += 2 * each.bytes();
  }
  for (std::size_t i = 0; i < pack.size(); ++i) {
    if (op == ReduceOp::avg) detail::average(mains[i], group.size());
    for (auto level = groups[i].rbegin(); level != groups[i].rend(); ++level) {
      for (const LevelGroup& each : *level) {
        for (const std::size_t other : each.others) detail::copy(pack[i][other], pack[i][each.main]);
      }
    }
  }
}

std::uint64_t& HierarchicalCopyAllReduce::traffic_at(const std::string& level) {
  const auto found = std::ranges::find(traffic_, level, &LevelTraffic::level);
  return found != traffic_.end() ? found->bytes : traffic_.emplace_back(LevelTraffic{level}).bytes;
}

ReductionToOneDevice::ReductionToOneDevice(std::string reduce_to_device, Accumulate accumulate)
    : ReductionToOneDevice(std::move(accumulate)) {
  static_cast<void>(parse_device(reduce_to_device));  // Throws if the text is no device name.
  device_ = std::move(reduce_to_device);
}

ReductionToOneDevice::ReductionToOneDevice(Accumulate accumulate) : accumulate_(std::move(accumulate)) {
  if (accumulate_) return;
  accumulate_ = [](ReduceOp op, const TensorViews& parts) {
    for (std::size_t i = 1; i < parts.size(); ++i) detail::reduce_into(op, parts[0], parts[i]);
  };
}

void ReductionToOneDevice::log_path(ReplicaGroup& group, int main) {
  if (!logged_ && group.has(main))
    group.announce(
        text("Reduce to ", group.device(main - group.first()), " then broadcast to ", group.devices_text(), '.'));
  logged_ = true;
}

// Gathers all values at one replica, combines them in the order of replicas, and broadcasts the result.
void ReductionToOneDevice::reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) {
  const int main = device_.empty() ? 0 : group.find(device_);
  const std::size_t here = group.has(main) ? static_cast<std::size_t>(main - group.first()) : 0;
  log_path(group, main);
  std::vector<std::byte> all = group.gather(value, main);
  if (group.has(main) && value.front().count > 0) {
    TensorViews parts;
    for (int i = 0; i < group.size(); ++i)
      parts.push_back(
          {all.data() + static_cast<std::size_t>(i) * value.front().bytes(), value.front().type, value.front().count});
    accumulate_(op, parts);
    if (op == ReduceOp::avg) detail::average(parts[0], group.size());
    detail::copy(value[here], parts[0]);
  }
  group.broadcast(value, main);
}

}  // namespace lockstep
