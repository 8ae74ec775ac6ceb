// SPDX-License-Identifier: Apache-2.0
// Offers the lower-level verbs of a strategy, for libraries that keep variables of their own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/cross_device_ops.hpp"
#include "runtime/variable.hpp"
#include "runtime/variable_scope.hpp"

namespace lockstep {

// Refers to a strategy, which must outlive it.
class Extended {
 public:
  using DeviceList = CrossDeviceOps::DeviceList;

  // Gives access to a strategy, which must outlive it.
  explicit Extended(Strategy& strategy) : strategy_(&strategy) {}

  // Returns the devices on which replicas compute.
  DeviceList worker_devices() const { return strategy_->devices(); }
  // Returns the devices on which variables are kept.
  DeviceList parameter_devices() const;
  // Returns the devices that hold the parts of a variable.
  DeviceList devices_of(const AnyVariable& variable) const;

  // Combines the tensors of all replicas. Returns the result once for each destination, or for all devices if none are
  // named.
  template <class T>
  Mirrored<Tensor<T>> reduce_to(NamedOp op, PerReplica<Tensor<T>> value, const Destinations& to = {},
                                const CommunicationOptions& options = {}, Origin origin = Origin::here()) {
    return ops().reduce(*strategy_, op, std::move(value), to, options, origin);
  }
  template <class T>
  std::vector<Mirrored<Tensor<T>>> batch_reduce_to(NamedOp op,
                                                   std::vector<std::pair<PerReplica<Tensor<T>>, Destinations>> values,
                                                   const CommunicationOptions& options = {},
                                                   Origin origin = Origin::here()) {
    return ops().batch_reduce(*strategy_, op, std::move(values), options, origin);
  }
  // Concatenates the slices of all replicas in their order; MEAN divides each by the number of replicas. If they have
  // many rows, they are added up, as in a replica's all_reduce.
  template <class T>
  Mirrored<IndexedSlices<T>> reduce_to(NamedOp op, const PerReplica<IndexedSlices<T>>& value,
                                       const Destinations& to = {}, Origin origin = Origin::here()) {
    return ops().broadcast(*strategy_, slices_of_all(op, value, origin), to);
  }
  template <class T>
  std::vector<Mirrored<IndexedSlices<T>>> batch_reduce_to(
      NamedOp op, const std::vector<std::pair<PerReplica<IndexedSlices<T>>, Destinations>>& values,
      Origin origin = Origin::here()) {
    std::vector<Mirrored<IndexedSlices<T>>> all;
    for (const auto& [value, to] : values) all.push_back(reduce_to(op, value, to, origin));
    return all;
  }
  // Returns a copy of `value` for each device.
  template <class T>
  Mirrored<Tensor<T>> broadcast_to(const Tensor<T>& value, const Destinations& to = {}) {
    return ops().broadcast(*strategy_, value, to);
  }
  // Is Strategy::update().
  template <class T, class F, class... A>
  auto update(Variable<T>& variable, F&& function, const A&... arguments) {
    return strategy_->update(variable, std::forward<F>(function), arguments...);
  }
  // Returns the devices for state that belongs to no single variable, such as an optimizer's counters: one part on
  // each.
  template <class T>
  DeviceList non_slot_devices(const std::vector<Variable<T>>& /*variables*/) const {
    return parameter_devices();
  }
  // Calls `function(arguments...)` once for each device, with that device's part of each PerReplica. Regroups the
  // results as run() does.
  template <class F, class... A>
  auto update_non_slot(const Destinations& at, F&& function, const A&... arguments);
  // Is the older name of run().
  template <class F, class... A>
  auto call_for_each_replica(F&& function, A&&... arguments) {
    return strategy_->run(std::forward<F>(function), std::forward<A>(arguments)...);
  }
  // Returns a scope in which new variables are kept where this one is, with as many parts. Throws Error usage for
  // another strategy's variable.
  ColocationScope colocate_vars_with(const AnyVariable& variable) const;
  // True if the variable belongs to this strategy.
  bool variable_created_in_scope(const AnyVariable& variable) const { return &variable.strategy() == strategy_; }
  // True if this process writes checkpoints and summaries: it has the first replica.
  bool should_checkpoint() const { return is_first(); }
  bool should_save_summary() const { return is_first(); }

 private:
  CrossDeviceOps& ops() const { return strategy_->cross_device_ops(); }
  bool is_first() const { return strategy_->replica(0).replica_id_in_sync_group() == 0; }
  [[noreturn]] void refuse_stranger(std::string_view call, const Strategy& other) const;
  static void check_slices(ReduceOp op);
  template <class T>
  IndexedSlices<T> slices_of_all(NamedOp op, const PerReplica<IndexedSlices<T>>& value, Origin origin);

  Strategy* strategy_;
};

template <class T>
IndexedSlices<T> Extended::slices_of_all(NamedOp op, const PerReplica<IndexedSlices<T>>& value, Origin origin) {
  check_slices(op.op());
  detail::require_cross_replica(*strategy_, "reduce_to");
  detail::check_parts(*strategy_, value.size());
  detail::ReplicaCalls& calls = detail::ReplicaCalls::of(*strategy_);
  std::vector<detail::EncodedRows> words;
  for (const IndexedSlices<T>& each : value.local()) words.push_back(detail::rows_of(each));
  const std::int64_t all_rows = detail::rows_of_all(calls.values_of_all(words, origin));
  if (detail::goes_dense<T>(op.op(), strategy_->num_replicas_in_sync(), all_rows, value[0].dense_shape()[0])) {
    std::deque<Tensor<T>> wholes;
    std::deque<std::vector<std::uint8_t>> touched;
    for (const IndexedSlices<T>& each : value.local()) {
      wholes.push_back(each.dense());
      touched.push_back(detail::touched(each));
    }
    calls.run_all(
        [&](Communicator& member, int local) {
          return member.all_reduce_async(touched[static_cast<std::size_t>(local)], max, origin);
        },
        origin);
    return detail::slices_of(strategy_->reduce(op, PerReplica(std::move(wholes)), origin), touched.front());
  }
  std::deque<Tensor<T>> values;
  std::deque<Tensor<std::int64_t>> indices;
  for (const IndexedSlices<T>& each : value.local()) {
    values.push_back(each.values());
    indices.push_back(row(each.indices()));
  }
  Tensor<T> all = strategy_->gather(PerReplica(std::move(values)), 0, origin);
  const Tensor<std::int64_t> where = strategy_->gather(PerReplica(std::move(indices)), 0, origin);
  return detail::joined_slices(std::move(all), where, value[0].dense_shape(), op.op(),
                               strategy_->num_replicas_in_sync());
}

template <class F, class... A>
auto Extended::update_non_slot(const Destinations& at, F&& function, const A&... arguments) {
  detail::require_cross_replica(*strategy_, "update_non_slot");
  (detail::check_argument(*strategy_, arguments), ...);
  using Result = std::remove_cvref_t<decltype(std::invoke(function, detail::part_of(arguments, 0)...))>;
  const auto call = [&](int local) -> decltype(auto) {
    const detail::ScopedContext inside(*strategy_, nullptr, local);
    return std::invoke(function, detail::part_of(arguments, local)...);
  };
  if constexpr (std::is_void_v<Result>) {
    for (const int local : at.places(*strategy_)) call(local);
  } else {
    std::deque<Result> all;
    for (const int local : at.places(*strategy_)) all.push_back(call(local));
    return detail::regroup(std::move(all));
  }
}

inline Extended Strategy::extended() { return Extended(*this); }

}  // namespace lockstep
