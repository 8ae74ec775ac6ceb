// SPDX-License-Identifier: Apache-2.0
// How the replicas' values become one, as something that a program can choose, or write itself. Public calls check and
// copy; what a class overrides combines memory in place and knows no types.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/values/view.hpp"

namespace lockstep {

// The replicas of all processes, as an implementation sees them.
class ReplicaGroup {
 public:
  ReplicaGroup(Strategy& strategy, const CommunicationOptions& options, Origin origin)
      : strategy_(&strategy), options_(strategy.communication_with(options)), origin_(origin) {}
  int size() const { return strategy_->num_replicas_in_sync(); }
  int local() const { return strategy_->num_local_replicas(); }
  bool has_first() const { return strategy_->replica(0).replica_id_in_sync_group() == 0; }
  const Log& log() const { return strategy_->log(); }
  // The strategy's, and the call's.
  const CommunicationOptions& options() const { return options_; }
  // All values at once, in place, over all processes.
  void all_reduce(ReduceOp op, const std::vector<Views>& values);
  // Every replica's memory, one after the other, at the process of the first one.
  std::vector<std::byte> gather(const Views& value);
  // What the first replica has, at all of them.
  void broadcast(const Views& value);

 private:
  using Start = std::function<Request(Communicator& member, int local)>;
  void run_all(const Start& start);

  Strategy* strategy_;
  CommunicationOptions options_;
  Origin origin_;
};

class CrossDeviceOps {
 public:
  using Devices = std::vector<std::string>;

  virtual ~CrossDeviceOps() = default;
  virtual std::string describe() const = 0;

  // Everybody's tensors combined, at each of these devices of the strategy, and at all where none are named. All
  // processes call it.
  template <class T>
  Mirrored<Tensor<T>> reduce(Strategy& strategy, NamedOp op, PerReplica<Tensor<T>> value, const Devices& to,
                             const CommunicationOptions& options = {}, Origin origin = Origin::here()) {
    return std::move(batch_reduce(strategy, op,
                                  std::vector<std::pair<PerReplica<Tensor<T>>, Devices>>{{std::move(value), to}},
                                  options, origin)
                         .front());
  }
  template <class T>
  std::vector<Mirrored<Tensor<T>>> batch_reduce(Strategy& strategy, NamedOp op,
                                                std::vector<std::pair<PerReplica<Tensor<T>>, Devices>> values,
                                                const CommunicationOptions& options = {},
                                                Origin origin = Origin::here());
  // In place, at all replicas; nothing where there is one alone.
  void combine(Strategy& strategy, ReduceOp op, const std::vector<Views>& values, const CommunicationOptions& options,
               Origin origin);
  template <class T>
  Mirrored<Tensor<T>> broadcast(Strategy& strategy, const Tensor<T>& value, const Devices& to) {
    detail::require_cross_replica(strategy, "broadcast");
    return Mirrored<Tensor<T>>(std::deque<Tensor<T>>(places(strategy, to).size(), value));
  }

 protected:
  // Combines each value in place: afterwards it is the same at all replicas. `op` is sum, avg, min, max or prod.
  virtual void reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) = 0;
  // Many at once; one after the other unless overridden.
  virtual void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& values) {
    for (const Views& each : values) reduce_implementation(group, op, each);
  }

 private:
  static std::vector<int> places(const Strategy& strategy, const Devices& to);
};

// Packs of equal length, of all values one after the other; the last one has what is left. Each goes as one operation.
// Where the options say how many bytes go together, by that.
class PackedOps : public CrossDeviceOps {
 public:
  explicit PackedOps(std::string name, int num_packs);
  std::string describe() const override;

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) override;
  void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& values) override;
  void reduce_by_bytes(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& order);
  virtual void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack);
  // Once, what really runs in this build.
  void say(ReplicaGroup& group, const std::string& what);

 private:
  std::string name_;
  int num_packs_;
  bool said_ = false;
};

// Where a pack begins and ends, in elements of all values one after the other.
std::vector<std::pair<std::size_t, std::size_t>> plan_packs(std::size_t count, int num_packs);

// By NCCL among GPUs; among processors the same all_reduce over the memory of the node, or the network.
class NcclAllReduce : public PackedOps {
 public:
  explicit NcclAllReduce(int num_packs = 1) : PackedOps("NcclAllReduce", num_packs) {}

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack) override;
};

// Two groups of half the replicas: in each one adds up, the two meet, and each tells its group. Which ones changes from
// value to value. For an even number of replicas of one process; others go as one group.
class HierarchicalCopyAllReduce : public PackedOps {
 public:
  explicit HierarchicalCopyAllReduce(int num_packs = 1) : PackedOps("HierarchicalCopyAllReduce", num_packs) {}

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<Views>& pack) override;
};

// All come to one replica, which combines them from the first to the last and tells all.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  // Of parts in the order of replicas, all of one type and length, into the first one.
  using Accumulate = std::function<void(ReduceOp op, const Views& parts)>;

  explicit ReductionToOneDevice(Accumulate accumulate = {});
  std::string describe() const override { return "ReductionToOneDevice"; }

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) override;

 private:
  Accumulate accumulate_;
  bool said_ = false;
};

template <class T>
std::vector<Mirrored<Tensor<T>>> CrossDeviceOps::batch_reduce(
    Strategy& strategy, NamedOp op, std::vector<std::pair<PerReplica<Tensor<T>>, Devices>> values,
    const CommunicationOptions& options, Origin origin) {
  detail::require_cross_replica(strategy, "reduce");
  std::vector<Views> views;
  std::vector<std::vector<int>> wanted;
  for (auto& [value, to] : values) {
    wanted.push_back(places(strategy, to));
    strategy.check_parts(value.size());
    Views each;
    for (int local = 0; local < value.size(); ++local) {
      detail::require_alike(value[0], value[local]);
      each.push_back({value[local].data(), data_type_of<T>, value[local].size()});
    }
    views.push_back(std::move(each));
  }
  combine(strategy, op.op(), views, options, origin);
  std::vector<Mirrored<Tensor<T>>> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::deque<Tensor<T>> parts;
    for (const int local : wanted[i]) parts.push_back(values[i].first[local]);
    all.push_back(Mirrored<Tensor<T>>(std::move(parts)));
  }
  return all;
}

}  // namespace lockstep
