// SPDX-License-Identifier: Apache-2.0
// The verbs below a strategy's: for libraries that keep variables of their own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/cross_device_ops.hpp"
#include "runtime/variable.hpp"

namespace lockstep {

class Extended {
 public:
  using Devices = CrossDeviceOps::Devices;

  explicit Extended(Strategy& strategy) : strategy_(&strategy) {}

  // Where replicas compute, and where variables are.
  Devices worker_devices() const { return strategy_->devices(); }
  Devices parameter_devices() const;
  template <class T>
  Devices devices_of(const Variable<T>& variable) const {
    Devices all = strategy_->devices();
    all.resize(variable.core().values.size());
    return all;
  }

  // Everybody's tensors combined, at these devices; at all where none are named.
  template <class T>
  Mirrored<Tensor<T>> reduce_to(NamedOp op, PerReplica<Tensor<T>> value, const Devices& to = {},
                                const CommunicationOptions& options = {}, Origin origin = Origin::here()) {
    return ops().reduce(*strategy_, op, std::move(value), to, options, origin);
  }
  template <class T>
  std::vector<Mirrored<Tensor<T>>> batch_reduce_to(NamedOp op,
                                                   std::vector<std::pair<PerReplica<Tensor<T>>, Devices>> values,
                                                   const CommunicationOptions& options = {},
                                                   Origin origin = Origin::here()) {
    return ops().batch_reduce(*strategy_, op, std::move(values), options, origin);
  }
  template <class T>
  Mirrored<Tensor<T>> broadcast_to(const Tensor<T>& value, const Devices& to = {}) {
    return ops().broadcast(*strategy_, value, to);
  }
  template <class T, class F, class... A>
  auto update(Variable<T>& variable, F&& function, const A&... arguments) {
    return strategy_->update(variable, std::forward<F>(function), arguments...);
  }
  // The older name of run().
  template <class F, class... A>
  auto call_for_each_replica(F&& function, A&&... arguments) {
    return strategy_->run(std::forward<F>(function), std::forward<A>(arguments)...);
  }
  template <class T>
  bool variable_created_in_scope(const Variable<T>& variable) const {
    return &variable.strategy() == strategy_;
  }
  // Whether this process writes checkpoints, and summaries.
  bool should_checkpoint() const { return is_first(); }
  bool should_save_summary() const { return is_first(); }

 private:
  CrossDeviceOps& ops() const { return strategy_->cross_device_ops(); }
  bool is_first() const { return strategy_->replica(0).replica_id_in_sync_group() == 0; }

  Strategy* strategy_;
};

inline Extended Strategy::extended() { return Extended(*this); }

}  // namespace lockstep
