// SPDX-License-Identifier: Apache-2.0
#include "runtime/cross_device_ops.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/kernels/kernels.hpp"
#include "runtime/packs.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// to = to op from, an average being a sum so far.
void take_in(ReduceOp op, const View& to, const View& from) {
  const Kernel* const kernel = find_kernel(to.type, op == ReduceOp::avg ? ReduceOp::sum : op);
  if (kernel == nullptr)
    throw Error(Code::usage, text("no ", to_string(op), " of ", to_string(to.type)), "use numbers");
  kernel->two(to.data, to.data, from.data, to.count);
}

void average(const View& view, int of) { divide(view.type, view.data, view.data, view.count, of); }

}  // namespace

// All wait as long as the call says.
void ReplicaGroup::run_all(const Start& start) {
  strategy_->run_all(
      [&](Communicator& member, int local) {
        const detail::Hurry hurry(member, options_.timeout);
        return start(member, local);
      },
      origin_);
}

void ReplicaGroup::all_reduce(ReduceOp op, const std::vector<Views>& values) {
  std::deque<Batch> batches;
  run_all([&](Communicator& member, int local) {
    Batch& batch = batches.emplace_back(member);
    for (const Views& each : values)
      detail::add_view(batch, each[static_cast<std::size_t>(local)], NamedOp(op), origin_);
    return batch.start(origin_);
  });
}

std::vector<std::byte> ReplicaGroup::gather(const Views& value) {
  const std::size_t bytes = value.front().bytes();
  std::vector<std::byte> all(has_first() ? bytes * static_cast<std::size_t>(size()) : 0);
  run_all([&](Communicator& member, int local) {
    const View& mine = value[static_cast<std::size_t>(local)];
    const std::span<const std::byte> part(static_cast<const std::byte*>(mine.data), bytes);
    // Only the first replica's own output is looked at.
    return member.gather_async(part, local == 0 ? std::span<std::byte>(all) : std::span<std::byte>(), 0, origin_);
  });
  return all;
}

void ReplicaGroup::broadcast(const Views& value) {
  run_all([&](Communicator& member, int local) {
    const View& mine = value[static_cast<std::size_t>(local)];
    return member.broadcast_async(std::span<std::byte>(static_cast<std::byte*>(mine.data), mine.bytes()), 0, origin_);
  });
}

void CrossDeviceOps::combine(Strategy& strategy, ReduceOp op, const std::vector<Views>& values,
                             const CommunicationOptions& options, Origin origin) {
  ReplicaGroup group(strategy, options, origin);
  if (group.size() == 1 || values.empty()) return;  // of one, everything is what it is
  if (values.size() == 1)
    reduce_implementation(group, op, values.front());
  else
    batch_reduce_implementation(group, op, values);
}

std::vector<int> CrossDeviceOps::places(const Strategy& strategy, const Devices& to) {
  std::vector<int> all;
  const std::vector<std::string> there = strategy.devices();
  for (const std::string& each : to) {
    const auto found = std::ranges::find(there, to_string(parse_device(each)));
    if (found == there.end())
      throw Error(Code::usage, text("no replica of ", strategy.describe(), " is on the destination ", printable(each)),
                  text("there are ", join(there, ", ")));
    all.push_back(static_cast<int>(found - there.begin()));
  }
  for (int local = 0; to.empty() && local < strategy.num_local_replicas(); ++local) all.push_back(local);
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
    throw Error(Code::usage, text(name_, " with num_packs ", num_packs), "say how many packs, or 0 for none at all");
}

std::string PackedOps::describe() const {
  return num_packs_ == 0 ? text(name_, " without packs")
                         : text(name_, " in ", num_packs_, num_packs_ == 1 ? " pack" : " packs");
}

void PackedOps::say(ReplicaGroup& group, const std::string& what) {
  if (!said_) group.log().info(text(describe(), ": ", what));
  said_ = true;
}

void PackedOps::reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) {
  reduce_pack(group, op, {value});
}

void PackedOps::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack) {
  group.all_reduce(op, pack);
}

// The last values first, since their gradients are there first.
void PackedOps::batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& values) {
  std::vector<Views> order(values.rbegin(), values.rend());
  if (group.options().bytes_per_pack > 0) return reduce_by_bytes(group, op, order);
  if (num_packs_ == 0) {
    for (const Views& each : order) reduce_pack(group, op, {each});
    return;
  }
  std::size_t count = 0;
  for (const Views& each : order) count += each.front().count;
  std::size_t before = 0;  // of the value
  auto value = order.begin();
  for (const auto& [first, end] : plan_packs(count, num_packs_)) {
    std::vector<Views> pack;
    while (value != order.end() && before < end) {
      const std::size_t length = value->front().count;
      const std::size_t from = std::max(first, before) - before;
      const std::size_t to = std::min(end - before, length);
      Views cut;
      for (const View& each : *value) cut.push_back(each.part(from, to - from));
      if (to > from) pack.push_back(std::move(cut));
      if (before + length > end) break;
      before += length;
      ++value;
    }
    if (!pack.empty()) reduce_pack(group, op, pack);
  }
}

void PackedOps::reduce_by_bytes(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& order) {
  std::vector<std::size_t> bytes;
  bytes.reserve(order.size());
  for (const Views& each : order) bytes.push_back(each.front().bytes());
  for (const auto& [first, end] : plan_packs_of_bytes(bytes, group.options().bytes_per_pack))
    reduce_pack(group, op,
                {order.begin() + static_cast<std::ptrdiff_t>(first), order.begin() + static_cast<std::ptrdiff_t>(end)});
}

void NcclAllReduce::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack) {
  say(group, "no replica is on a GPU, so not by NCCL but over the memory of the node or the network");
  group.all_reduce(op, pack);
}

void HierarchicalCopyAllReduce::reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack) {
  const int n = group.local();
  if (n != group.size() || n < 4 || n % 2 != 0) {
    say(group, text("two groups are for an even number of replicas of one process, from four on; ", group.size(),
                    " go as one"));
    return group.all_reduce(op, pack);
  }
  say(group, text("two groups of ", n / 2, " replicas"));
  const auto half = static_cast<std::size_t>(n / 2);
  for (std::size_t i = 0; i < pack.size(); ++i) {
    const Views& value = pack[i];
    const std::size_t main = i % half;
    for (const std::size_t first : {std::size_t{0}, half}) {
      for (std::size_t other = 0; other < half; ++other) {
        if (other != main) take_in(op, value[first + main], value[first + other]);
      }
    }
    take_in(op, value[main], value[half + main]);
    if (op == ReduceOp::avg) average(value[main], n);
    for (std::size_t other = 0; other < value.size(); ++other) {
      if (other != main && value[main].bytes() > 0)
        std::memcpy(value[other].data, value[main].data, value[main].bytes());
    }
  }
}

ReductionToOneDevice::ReductionToOneDevice(Accumulate accumulate) : accumulate_(std::move(accumulate)) {
  if (accumulate_) return;
  accumulate_ = [](ReduceOp op, const Views& parts) {
    for (std::size_t i = 1; i < parts.size(); ++i) take_in(op, parts[0], parts[i]);
  };
}

void ReductionToOneDevice::reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) {
  if (!said_) group.log().info("Reduce to replica 0 then broadcast to all.");
  said_ = true;
  std::vector<std::byte> all = group.gather(value);
  if (group.has_first() && value.front().count > 0) {
    Views parts;
    for (int i = 0; i < group.size(); ++i)
      parts.push_back(
          {all.data() + static_cast<std::size_t>(i) * value.front().bytes(), value.front().type, value.front().count});
    accumulate_(op, parts);
    if (op == ReduceOp::avg) average(parts[0], group.size());
    std::memcpy(value.front().data, parts[0].data, parts[0].bytes());
  }
  group.broadcast(value);
}

}  // namespace lockstep
