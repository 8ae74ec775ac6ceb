// SPDX-License-Identifier: Apache-2.0
// How the replicas' values become one, as something that a program can choose, or write itself. Public calls check and
// copy; what a class overrides combines memory in place and knows no types. Replicas on GPUs may bring memory of these:
// the group's calls take it, the host cannot look into it (gpu::where() tells).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep {

// The replicas of all processes, as an implementation sees them.
class ReplicaGroup {
 public:
  ReplicaGroup(Strategy& strategy, const CommunicationOptions& options, Origin origin,
               const detail::CallSubject& subject = {})
      : strategy_(&strategy), options_(strategy.communication_with(options)), origin_(origin), subject_(subject) {}
  int size() const { return strategy_->num_replicas_in_sync(); }
  int local() const { return strategy_->num_local_replicas(); }
  // The number of this process's first replica.
  int first() const { return strategy_->replica(0).replica_id_in_sync_group(); }
  bool has(int replica) const { return replica >= first() && replica < first() + local(); }
  // The first replica on such a device, in whatever process; an Error usage where none is.
  int find(const std::string& device);
  std::string device(int local) const { return strategy_->devices().at(static_cast<std::size_t>(local)); }
  std::string devices_text() const { return strategy_->devices_text(); }
  // Who meets first, of the replicas of this process.
  const std::vector<detail::ReplicaLevel>& levels() const { return strategy_->levels_; }
  // Whether the replicas are on GPUs among which there is NCCL.
  bool by_nccl() const { return strategy_->communication_choice_.backend == CommunicationBackend::nccl; }
  const std::string& why() const { return strategy_->communication_choice_.why; }  // or why not
  // Whether the processes can meet without their other replicas.
  bool has_leader() const { return strategy_->has_leader(); }
  const Log& log() const { return strategy_->log(); }
  // The strategy's, and the call's.
  const CommunicationOptions& options() const { return options_; }
  // All values at once, in place, over all processes.
  void all_reduce(ReduceOp op, const std::vector<TensorViews>& values);
  // Each process's one value for its replicas, in place.
  void all_reduce_of_processes(ReduceOp op, const TensorViews& values);
  // Every replica's memory, one after the other, at the process of that one.
  std::vector<std::byte> gather(const TensorViews& value, int at);
  // What that replica has, at all of them.
  void broadcast(const TensorViews& value, int from);

 private:
  using Start = std::function<Request(Communicator& member, int local)>;
  void run_all(const Start& start);

  Strategy* strategy_;
  CommunicationOptions options_;
  Origin origin_;
  detail::CallSubject subject_;
};

class CrossDeviceOps {
 public:
  using DeviceList = std::vector<std::string>;

  virtual ~CrossDeviceOps() = default;
  virtual std::string describe() const = 0;
  // Whether the processes are to meet without their other replicas: then the strategy gets what they need for that. The
  // same on all processes.
  virtual bool wants_leader() const { return false; }

  // Everybody's tensors combined, at each of these devices of the strategy, and at all where none are named. All
  // processes call it.
  template <class T>
  Mirrored<Tensor<T>> reduce(Strategy& strategy, NamedOp op, PerReplica<Tensor<T>> value, const DeviceList& to,
                             const CommunicationOptions& options = {}, Origin origin = Origin::here()) {
    return std::move(batch_reduce(strategy, op,
                                  std::vector<std::pair<PerReplica<Tensor<T>>, DeviceList>>{{std::move(value), to}},
                                  options, origin)
                         .front());
  }
  template <class T>
  std::vector<Mirrored<Tensor<T>>> batch_reduce(Strategy& strategy, NamedOp op,
                                                std::vector<std::pair<PerReplica<Tensor<T>>, DeviceList>> values,
                                                const CommunicationOptions& options = {},
                                                Origin origin = Origin::here());
  // Everybody's tensors one behind the other along an axis, at each of these devices.
  template <class T>
  Mirrored<Tensor<T>> gather(Strategy& strategy, const PerReplica<Tensor<T>>& value, const DeviceList& to, int axis,
                             Origin origin = Origin::here()) {
    return broadcast(strategy, strategy.gather(value, axis, origin), to);
  }
  // In place, at all replicas; nothing where there is one alone.
  void combine(Strategy& strategy, ReduceOp op, const std::vector<TensorViews>& values,
               const CommunicationOptions& options, Origin origin, const detail::CallSubject& subject = {});
  template <class V>
  Mirrored<V> broadcast(Strategy& strategy, const V& value, const DeviceList& to) {
    detail::require_cross_replica(strategy, "broadcast");
    return Mirrored<V>(std::deque<V>(places(strategy, to).size(), value));
  }
  // The local replicas on these devices of the strategy; all where none are named. One that is another process's, by
  // its job and task, is none of these.
  static std::vector<int> places(const Strategy& strategy, const DeviceList& to);

 protected:
  // Combines each value in place: afterwards it is the same at all replicas. `op` is sum, avg, min, max or prod.
  virtual void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) = 0;
  // Many at once; one after the other unless overridden.
  virtual void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& values) {
    for (const TensorViews& each : values) reduce_implementation(group, op, each);
  }
};

// Packs of equal length, of all values one after the other; the last one has what is left. Each goes as one operation.
// Where the options say how many bytes go together, by that.
class PackedOps : public CrossDeviceOps {
 public:
  explicit PackedOps(std::string name, int num_packs);
  std::string describe() const override;

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override;
  void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& values) override;
  void reduce_by_bytes(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& order);
  // `number` counts the packs of a call.
  virtual void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number);
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
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number) override;
};

// Level by level, as the machine is built: those that share a cache meet at one of them, these in their package, those
// of a process with the other processes; then each tells its group. Who adds up changes from value to value. Over
// several processes of several replicas it must be the strategy's own; otherwise all go as one.
class HierarchicalCopyAllReduce : public PackedOps {
 public:
  // What went from one replica's memory to another's at a level, up and down, in this process; "processes" last.
  struct LevelTraffic {
    std::string level;
    std::uint64_t bytes = 0;
    bool operator==(const LevelTraffic&) const = default;
  };

  explicit HierarchicalCopyAllReduce(int num_packs = 1) : PackedOps("HierarchicalCopyAllReduce", num_packs) {}
  bool wants_leader() const override { return true; }
  // Since it was made. Not to be asked for while replicas run.
  const std::vector<LevelTraffic>& traffic() const { return traffic_; }

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number) override;

 private:
  std::uint64_t& traffic_at(const std::string& level);

  std::vector<LevelTraffic> traffic_;
};

// All come to one replica, which combines them from the first to the last and tells all: to the first one, or to the
// one on a device: "cpu:1" is so on the first process that has it, "/job:worker/task:1/device:CPU:0" on that one.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  // Of parts in the order of replicas, all of one type and length, into the first one.
  using Accumulate = std::function<void(ReduceOp op, const TensorViews& parts)>;

  explicit ReductionToOneDevice(Accumulate accumulate = {});
  explicit ReductionToOneDevice(std::string reduce_to_device, Accumulate accumulate = {});
  std::string describe() const override { return "ReductionToOneDevice"; }

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override;

 private:
  std::string device_;
  Accumulate accumulate_;
  bool said_ = false;
};

template <class T>
std::vector<Mirrored<Tensor<T>>> CrossDeviceOps::batch_reduce(
    Strategy& strategy, NamedOp op, std::vector<std::pair<PerReplica<Tensor<T>>, DeviceList>> values,
    const CommunicationOptions& options, Origin origin) {
  detail::require_cross_replica(strategy, "reduce");
  std::vector<TensorViews> views;
  Fingerprint shapes;
  std::size_t tensors = 0;
  for (auto& [value, to] : values) {
    strategy.check_parts(value.size());
    TensorViews each;
    for (int local = 0; local < value.size(); ++local) {
      detail::require_alike(value[0], value[local]);
      each.push_back({value[local].data(), data_type_of<T>, value[local].size()});
    }
    views.push_back(std::move(each));
    detail::add_layout(shapes, value[0], tensors);
  }
  combine(strategy, op.op(), views, options, origin, {.layout = layout_of(shapes.value(), tensors)});
  std::vector<Mirrored<Tensor<T>>> all;
  for (auto& [value, to] : values) {  // a destination that is wrong here has let the others end the call
    std::deque<Tensor<T>> parts;
    for (const int local : places(strategy, to)) parts.push_back(value[local]);
    all.push_back(Mirrored<Tensor<T>>(std::move(parts)));
  }
  return all;
}

}  // namespace lockstep
