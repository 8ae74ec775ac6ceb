// SPDX-License-Identifier: Apache-2.0
// Combines the replicas' values by an algorithm that a program chooses, or writes itself. Public calls check and copy.
// Overridden functions combine memory in place and know no types. Replicas on GPUs may pass memory of these: the
// group's calls accept it, but the host cannot read it (see gpu::where()).
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/replica_levels.hpp"
#include "runtime/strategy.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep {

// Names the devices for results: by default all of the strategy's, otherwise those in a list, or those that hold a
// variable or a value.
class Destinations {
 public:
  Destinations() = default;
  // NOLINTBEGIN(google-explicit-constructor): lists, variables and values are destinations
  // Take the names of devices. They throw Error usage for none.
  Destinations(std::vector<std::string> devices);
  Destinations(std::initializer_list<std::string> devices) : Destinations(std::vector<std::string>(devices)) {}
  // Take the devices that hold the parts of a variable.
  Destinations(const AnyVariable& variable);
  template <class T>
  Destinations(const Variable<T>& variable) : Destinations(AnyVariable(variable)) {}
  // Takes the devices of a value's parts: there must be one for each replica of the process.
  template <class T>
  Destinations(const PerReplica<T>& value) : parts_(value.size()), is_value_(true) {}
  // NOLINTEND(google-explicit-constructor)

  // Returns the local replicas on these devices of the strategy, or the first replica whose variables are there. It
  // leaves out devices that name another process by job and task. Throws Error usage for an unknown device, and for a
  // value of another number of parts.
  std::vector<int> places(const Strategy& strategy) const;

 private:
  std::vector<std::string> devices_;
  int parts_ = 0;
  bool is_value_ = false;
};

// Gives an implementation its view of the replicas of all processes. It refers to the strategy and lives for one call.
class ReplicaGroup {
 public:
  ReplicaGroup(Strategy& strategy, const CommunicationOptions& options, Origin origin,
               const detail::CallSubject& subject = {})
      : strategy_(&strategy), options_(strategy.communication_with(options)), origin_(origin), subject_(subject) {}
  // Returns the number of replicas of all processes.
  int size() const { return strategy_->num_replicas_in_sync(); }
  // Returns the number of replicas of this process.
  int local() const { return strategy_->num_local_replicas(); }
  // Returns the number of this process's first replica.
  int first() const { return strategy_->replica(0).replica_id_in_sync_group(); }
  // True if the replica belongs to this process.
  bool has(int replica) const { return replica >= first() && replica < first() + local(); }
  // Returns the first replica on the device, in any process. All processes call it. Throws Error usage if there is
  // none.
  int find(const std::string& device);
  // Returns the device of a local replica.
  std::string device(int local) const { return strategy_->devices().at(static_cast<std::size_t>(local)); }
  std::string devices_text() const;
  // Returns the order in which the replicas of this process meet.
  const std::vector<detail::ReplicaLevel>& levels() const;
  // True if the replicas are on GPUs and use NCCL.
  bool by_nccl() const;
  // Returns the reason for the backend.
  const std::string& why() const;
  const Log& log() const { return strategy_->log(); }
  // Logs a line that is shown by default, once for all ranks of mpirun.
  void announce(const std::string& line) const;
  // Returns the strategy's options, overridden by those of the call.
  const CommunicationOptions& options() const { return options_; }
  // Combines all values at once, in place, over all processes.
  void all_reduce(ReduceOp op, const std::vector<TensorViews>& values);
  // Combines values over the processes, in place. Each process gives one value that stands for all its replicas.
  void all_reduce_of_processes(ReduceOp op, const TensorViews& values);
  // Returns the memory of every replica, one after the other, at the process of replica `at`. Other processes get no
  // bytes.
  std::vector<std::byte> gather(const TensorViews& value, int at);
  // Writes the values of all replicas, one after the other, into `all` on every process. They may differ in length:
  // `counts` has the number of elements of each replica.
  void all_gather(const TensorViews& value, const std::vector<std::size_t>& counts, const TensorView& all);
  // Copies the value of replica `from` to all replicas.
  void broadcast(const TensorViews& value, int from);

 private:
  // Starts a call in every local replica and waits for all, at most as long as the options say.
  void run_all(const detail::ReplicaCalls::Start& start);

  Strategy* strategy_;
  CommunicationOptions options_;
  Origin origin_;
  detail::CallSubject subject_;
};

// Is the interface of all implementations. A strategy shares ownership of it.
class CrossDeviceOps {
 public:
  using DeviceList = std::vector<std::string>;

  virtual ~CrossDeviceOps() = default;
  // Returns a text for people.
  virtual std::string describe() const = 0;
  // True if the processes meet without their other replicas, by their training channel. The strategy refuses operations
  // that differ in this between processes.
  virtual bool wants_leader() const { return false; }

  // Combines the tensors of all replicas. Returns the result once for each device in `to`. All processes call it.
  template <class T>
  Mirrored<Tensor<T>> reduce(Strategy& strategy, NamedOp op, PerReplica<Tensor<T>> value, const Destinations& to = {},
                             const CommunicationOptions& options = {}, Origin origin = Origin::here()) {
    std::vector<std::pair<PerReplica<Tensor<T>>, Destinations>> one;
    one.emplace_back(std::move(value), to);
    return std::move(batch_reduce(strategy, op, std::move(one), options, origin).front());
  }
  // Combines several values at once, each to its own devices.
  template <class T>
  std::vector<Mirrored<Tensor<T>>> batch_reduce(Strategy& strategy, NamedOp op,
                                                std::vector<std::pair<PerReplica<Tensor<T>>, Destinations>> values,
                                                const CommunicationOptions& options = {},
                                                Origin origin = Origin::here());
  // Concatenates the tensors of all replicas along an axis. Returns the result once for each device in `to`.
  template <class T>
  Mirrored<Tensor<T>> gather(Strategy& strategy, const PerReplica<Tensor<T>>& value, const Destinations& to, int axis,
                             Origin origin = Origin::here()) {
    const auto joined = [&](const auto& parts, const auto& counts, const auto& all) {
      concatenate(strategy, parts, counts, all, origin);
    };
    return broadcast(strategy, detail::gathered(strategy, value, axis, origin, joined), to);
  }
  // Concatenates values of any type, as ReplicaGroup::all_gather() does.
  void concatenate(Strategy& strategy, const TensorViews& value, const std::vector<std::size_t>& counts,
                   const TensorView& all, Origin origin);
  // Combines values in place, at all replicas. Does nothing with a single replica.
  void combine(Strategy& strategy, ReduceOp op, const std::vector<TensorViews>& values,
               const CommunicationOptions& options, Origin origin, const detail::CallSubject& subject = {});
  // Returns a copy of `value` for each device in `to`. Moves no data between processes.
  template <class T>
  Mirrored<Tensor<T>> broadcast(Strategy& strategy, const Tensor<T>& value, const Destinations& to = {},
                                Origin origin = Origin::here());
  template <class T>
  Mirrored<IndexedSlices<T>> broadcast(Strategy& strategy, const IndexedSlices<T>& value, const Destinations& to = {},
                                       Origin origin = Origin::here());

 protected:
  // Combines each value in place: afterwards it is the same at all replicas. `op` is sum, avg, min, max or prod.
  virtual void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) = 0;
  // Combines many values. By default it combines one after the other.
  virtual void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& values) {
    for (const TensorViews& each : values) reduce_implementation(group, op, each);
  }
  // Copies `value`, which it must not change, to each of the copies. They are of this process.
  virtual void broadcast_implementation(ReplicaGroup& group, const TensorView& value, const TensorViews& copies);
  // Writes the values of all replicas, one after the other, into `all`. By default it is group.all_gather().
  virtual void gather_implementation(ReplicaGroup& group, const TensorViews& value,
                                     const std::vector<std::size_t>& counts, const TensorView& all) {
    group.all_gather(value, counts, all);
  }
  // Logs once how values are combined. A single replica, which has nothing to combine, only makes this call.
  virtual void log_path(ReplicaGroup& /*group*/) {}
};

// Cuts all values, one after the other, into packs of equal length; the last pack has the rest. Each pack is one
// operation. If the options set bytes_per_pack, that decides instead.
class PackedOps : public CrossDeviceOps {
 public:
  // Throws Error usage for a negative number of packs. Zero makes each value an operation of its own.
  explicit PackedOps(std::string name, int num_packs);
  std::string describe() const override;

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override;
  void batch_reduce_implementation(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& values) override;
  // Combines packs of whole values, as large as the options say.
  void reduce_by_bytes(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& order);
  // Combines one pack. `number` counts the packs of a call from 0.
  virtual void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number);
  // Logs once by which mechanism the values are combined.
  void say(ReplicaGroup& group, const std::string& what);

 private:
  std::string name_;
  int num_packs_;
  bool logged_ = false;
};

// Returns where each pack begins and ends, in elements of all values one after the other.
std::vector<std::pair<std::size_t, std::size_t>> plan_packs(std::size_t count, int num_packs);

// Combines by NCCL among GPUs. Among processors it is the same all_reduce over the node's memory or the network.
class NcclAllReduce : public PackedOps {
 public:
  // Cuts all values into that many packs of equal length; 0 combines each value alone.
  explicit NcclAllReduce(int num_packs = 1) : PackedOps("NcclAllReduce", num_packs) {}

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number) override;
};

// Combines level by level, along the machine. Replicas that share a cache meet at one of them, then those of a
// package, then the processes; results go back the same way. The replica that adds up changes from value to value.
class HierarchicalCopyAllReduce : public PackedOps {
 public:
  // Counts the bytes moved between replicas at a level, up and down, in this process. The level "processes" comes
  // last.
  struct LevelTraffic {
    std::string level;
    std::uint64_t bytes = 0;
    bool operator==(const LevelTraffic&) const = default;
  };

  // Cuts all values into that many packs of equal length; 0 combines each value alone.
  explicit HierarchicalCopyAllReduce(int num_packs = 1) : PackedOps("HierarchicalCopyAllReduce", num_packs) {}
  bool wants_leader() const override { return true; }
  // Returns the bytes moved since this object was made. Must not be called while replicas run.
  const std::vector<LevelTraffic>& traffic() const { return traffic_; }

 protected:
  void reduce_pack(ReplicaGroup& group, ReduceOp op, const std::vector<TensorViews>& pack, std::size_t number) override;

 private:
  // Returns the counter of a level, and adds the level if it is new.
  std::uint64_t& traffic_at(const std::string& level);

  std::vector<LevelTraffic> traffic_;
};

// Gathers all values at one replica, combines them in the order of replicas, and broadcasts the result. The replica is
// the first one, or the one on a device. "cpu:1" is that device of the first process that has one;
// "/job:worker/task:1/device:CPU:0" names the process too.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  // Combines parts into the first one. The parts come in the order of replicas, and have one type and length.
  using Accumulate = std::function<void(ReduceOp op, const TensorViews& parts)>;

  // Takes an empty function for the default, an element-wise reduction.
  explicit ReductionToOneDevice(Accumulate accumulate = {});
  // Throws Error usage if the text is no device name.
  explicit ReductionToOneDevice(std::string reduce_to_device, Accumulate accumulate = {});
  std::string describe() const override { return "ReductionToOneDevice"; }

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override;
  void log_path(ReplicaGroup& group) override { log_path(group, 0); }

 private:
  void log_path(ReplicaGroup& group, int main);

  std::string device_;
  Accumulate accumulate_;
  bool logged_ = false;
};

template <class T>
std::vector<Mirrored<Tensor<T>>> CrossDeviceOps::batch_reduce(
    Strategy& strategy, NamedOp op, std::vector<std::pair<PerReplica<Tensor<T>>, Destinations>> values,
    const CommunicationOptions& options, Origin origin) {
  detail::require_cross_replica(strategy, "reduce");
  std::vector<TensorViews> views;
  Fingerprint shapes;
  std::size_t tensors = 0;
  for (auto& [value, to] : values) {
    detail::check_parts(strategy, value.size());
    for (int local = 0; local < value.size(); ++local) detail::require_alike(value[0], value[local]);
    views.push_back(detail::views_of_parts(value));
    detail::add_layout(shapes, value[0], tensors);
  }
  combine(strategy, op.op(), views, options, origin, {.layout = layout_of(shapes.value(), tensors)});
  std::vector<Mirrored<Tensor<T>>> all;
  // If a destination is wrong here, the other processes have already ended the call.
  for (auto& [value, to] : values) {
    std::deque<Tensor<T>> parts;
    for (const int local : to.places(strategy)) parts.push_back(value[local]);
    all.push_back(Mirrored<Tensor<T>>(std::move(parts)));
  }
  return all;
}

template <class T>
Mirrored<Tensor<T>> CrossDeviceOps::broadcast(Strategy& strategy, const Tensor<T>& value, const Destinations& to,
                                              Origin origin) {
  detail::require_cross_replica(strategy, "broadcast");
  std::deque<Tensor<T>> parts(to.places(strategy).size(), Tensor<T>(value.shape()));
  TensorViews copies;
  for (Tensor<T>& each : parts) copies.push_back(detail::view_of(each));
  ReplicaGroup group(strategy, {}, origin);
  if (!copies.empty()) broadcast_implementation(group, detail::view_of(value), copies);
  return Mirrored<Tensor<T>>(std::move(parts));
}

template <class T>
Mirrored<IndexedSlices<T>> CrossDeviceOps::broadcast(Strategy& strategy, const IndexedSlices<T>& value,
                                                     const Destinations& to, Origin origin) {
  const Mirrored<Tensor<T>> values = broadcast(strategy, value.values(), to, origin);
  const Mirrored<Tensor<std::int64_t>> rows = broadcast(strategy, row(value.indices()), to, origin);
  std::deque<IndexedSlices<T>> parts;
  for (int i = 0; i < values.size(); ++i)
    parts.emplace_back(values[i], std::vector<std::int64_t>(rows[i].begin(), rows[i].end()), value.dense_shape());
  return Mirrored<IndexedSlices<T>>(std::move(parts));
}

}  // namespace lockstep
