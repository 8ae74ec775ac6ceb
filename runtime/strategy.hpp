// SPDX-License-Identifier: Apache-2.0
// Runs one program on any number of replicas. A strategy calls a function in all replicas, and combines their values
// in cross-replica context. Strategies differ only in their replicas. They can be made, destroyed and made again.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/communication.hpp"
#include "runtime/devices.hpp"
#include "runtime/named_op.hpp"
#include "runtime/replica_calls.hpp"
#include "runtime/replica_context.hpp"
#include "runtime/replica_error.hpp"
#include "runtime/undo_log.hpp"
#include "runtime/values/fold.hpp"
#include "runtime/variable_layout.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class AnyVariable;
class Extended;
class Resolver;
template <class E>
class Dataset;
template <class E>
class DistributedDataset;
struct InputOptions;
template <class T>
class Variable;

namespace detail {
template <class R>
struct SharedOf;
struct ResolvedOptions;
struct StrategyState;
// Throws Error usage for a sum or product of a number that belongs to no replica.
void refuse_ambiguous(const Strategy& strategy, NamedOp op, double value);
}  // namespace detail

// Is the argument of the function given to `distribute_values_from`.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// Holds TensorFlow's options of run(). They concern graph compilers; here they are accepted and ignored.
struct RunOptions {
  bool experimental_enable_dynamic_batch_size = true;
  bool experimental_bucketizing_dynamic_shape = false;
  bool experimental_xla_options = false;
};

// Owns the replicas of this process, their threads and their communicators. It runs one run(), or one call for all, at
// a time.
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Returns a text for people: "MirroredStrategy with 2 replicas".
  std::string describe() const;
  // Returns the number of replicas of all processes. Gradients are summed over these.
  int num_replicas_in_sync() const;
  // Returns the number of replicas of this process.
  int num_local_replicas() const;
  // Returns the source of the cluster, which the strategy owns; null for strategies of one process.
  const Resolver* cluster_resolver() const;
  // Returns the order of additions.
  Order order() const;
  // Returns the options of calls that have none of their own.
  const CommunicationOptions& communication() const;
  // Returns the strategy's options, overridden by those of a call.
  CommunicationOptions communication_with(const CommunicationOptions& call);
  const Log& log() const;

  // Return the devices of this process's replicas, as "/job:localhost/replica:0/task:0/device:CPU:0", and a text that
  // explains them.
  std::vector<std::string> devices() const;
  std::string explain() const;

  // Returns a scope in which this strategy is the thread's current one.
  Scope scope() { return Scope(*this); }

  // Calls `function(context, arguments...)`, or without the context, in every replica of this process at once. Each
  // replica gets its own part of a PerReplica. Other arguments are shared, as are captured objects, which the function
  // must not change. Returns the results as a PerReplica, or as a structure with PerReplica leaves. An exception in
  // one replica cancels the others and is thrown as a ReplicaError. Throws Error usage if the strategy is running
  // already.
  template <class F, class... A>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto run(F&& function, A&&... arguments) {
    return run_in(nullptr, function, arguments...);
  }
  template <class F, class... A>
  auto run(const RunOptions& /*options*/, F&& function, A&&... arguments) {
    return run(std::forward<F>(function), std::forward<A>(arguments)...);
  }

  // Runs the function as run() does, as one step. If it fails in a replica of this process, or if a collective fails,
  // all variables of the strategy get back the values that they had before. Inside, a replica reads the values that it
  // has assigned. Other threads read no variable meanwhile.
  template <class F, class... A>
  auto step(F&& function, A&&... arguments) {
    detail::UndoLog log(num_local_replicas());
    return run_in(&log, function, arguments...);
  }

  // Combines the values of all replicas, and returns the result on every process. Structures are combined leaf by
  // leaf; tensors, which must have one shape, element by element.
  // The mean of integers throws Error usage, because it need not be an integer.
  // The average and the extremes of a plain number are the number itself. With several replicas its sum or product
  // throws Error usage, because the number belongs to no replica; only a sum of 0 is 0.
  template <class T>
  T reduce(NamedOp op, PerReplica<T> value, Origin origin = Origin::here());
  // Combines along one or several axes of each replica's tensor as well. The lengths of these axes may differ, and be
  // 0. The mean divides by the number of all elements.
  template <class T>
  Tensor<T> reduce(NamedOp op, const PerReplica<Tensor<T>>& value, std::vector<int> axes,
                   Origin origin = Origin::here());
  template <class T>
  Tensor<T> reduce(NamedOp op, const PerReplica<Tensor<T>>& value, int axis, Origin origin = Origin::here()) {
    return reduce(op, value, std::vector<int>{axis}, origin);
  }
  template <class T>
  Tensor<T> reduce(NamedOp op, const PerReplica<Tensor<T>>& value, std::initializer_list<int> axes,
                   Origin origin = Origin::here()) {
    return reduce(op, value, std::vector<int>(axes), origin);
  }
  // Combines a structure with PerReplica leaves, leaf by leaf, as run() returns it.
  template <class S>
  requires(detail::Structure<S>&& detail::PartOf<S>::differs) typename detail::PartOf<S>::Type
      reduce(NamedOp op, const S& structure, Origin origin = Origin::here());
  template <class T>
  requires(std::is_arithmetic_v<T>) T reduce(NamedOp op, T value) {
    detail::require_cross_replica(*this, "reduce");
    detail::refuse_ambiguous(*this, op, static_cast<double>(value));
    return value;
  }
  // Treats a tensor that belongs to no replica in the same way, but refuses every sum and product.
  template <class T>
  Tensor<T> reduce(NamedOp op, const Tensor<T>& value) {
    detail::require_cross_replica(*this, "reduce");
    detail::refuse_ambiguous(*this, op, 1);
    return value;
  }
  // Returns the common value for a mean or an extreme. A sum counts it once for each replica.
  template <class T>
  T reduce(NamedOp op, const Mirrored<T>& value, Origin origin = Origin::here());
  // Combines the parts of a variable. The only part of a plain or central variable is like a plain tensor.
  template <class T>
  Tensor<T> reduce(NamedOp op, const Variable<T>& variable, Origin origin = Origin::here());

  // Concatenates the tensors of all replicas along an axis, along which their lengths may differ.
  template <class T>
  Tensor<T> gather(const PerReplica<Tensor<T>>& value, int axis, Origin origin = Origin::here());

  // Calls `function(variable, arguments...)` for each replica of this process, with its part of each PerReplica.
  // Assignments to the variable change that replica's part only. Regroups the results as run() does.
  template <class T, class F, class... A>
  auto update(Variable<T>& variable, F&& function, const A&... arguments);

  // Return the parts of this process.
  template <class T>
  std::vector<T> local_results(const PerReplica<T>& value) const {
    return {value.local().begin(), value.local().end()};
  }
  template <class T>
  std::vector<Tensor<T>> local_results(const Variable<T>& variable) const;
  // Returns each replica's part of a structure with PerReplica leaves. A plain value comes back once.
  template <class S>
  std::vector<typename detail::PartOf<S>::Type> local_results(const S& value) const;

  // Returns a PerReplica of `function(ValueContext)` for each replica of this process. Calls it in this thread.
  template <class F>
  auto distribute_values_from(F&& function) {
    detail::require_cross_replica(*this, "distribute_values_from");
    const Scope inside(*this);
    std::deque<std::invoke_result_t<F&, ValueContext>> all;
    for (int local = 0; local < num_local_replicas(); ++local)
      all.push_back(
          std::invoke(function, ValueContext{replica(local).replica_id_in_sync_group(), num_replicas_in_sync()}));
    return PerReplica(std::move(all));
  }

  // Divide the batches of a data set among the replicas: runtime/distributed_dataset.hpp.
  template <class E>
  DistributedDataset<E> distribute(const Dataset<E>& dataset);
  template <class E>
  DistributedDataset<E> distribute(const Dataset<E>& dataset, const InputOptions& options);
  // Calls `function(InputContext)` in each process, or for each replica. It returns a data set of that process's own,
  // with a batch for each replica in each step.
  template <class F>
  auto distribute_from(F&& function);
  template <class F>
  auto distribute_from(F&& function, const InputOptions& options);
  // Returns the batch size of all replicas together.
  std::int64_t global_batch(std::int64_t of_each_replica) const { return of_each_replica * num_replicas_in_sync(); }
  // Calls `loader()` in one process of each node, and gives all of them the same memory: runtime/shared_on_node.hpp.
  template <class F>
  typename detail::SharedOf<std::invoke_result_t<F&>>::Type shared_on_node(F&& loader);

  // Returns the communicator of the processes for one purpose, with one member each; of size 1 in a strategy of one
  // process. The strategy owns it. Any thread may use it, one at a time for each channel. A collective of one channel
  // does not wait for another channel or for replicas, and an exception in a replica leaves all but `training` as they
  // are. `health` is the strategy's own: through it, processes agree on failures.
  Communicator& channel(Channel channel);

  // Returns where the parts of a new variable are kept: one at each replica, unless the strategy says otherwise.
  virtual VariableLayout variable_layout(const VariableOptions& options) const;
  // Returns the strategy's variables that still exist, in the order in which they were made.
  std::vector<AnyVariable> variables() const;
  // Returns the variable of this path. Throws Error usage if there is none; the message lists the paths that exist.
  AnyVariable variable(std::string_view path) const;
  // Take over a variable of another strategy, or all of its variables, with their values: after a failure, or to go on
  // with other replicas. All handles of a variable then refer to it in this strategy. A mirrored variable gets the
  // value of replica 0. A sum synchronised on read keeps what the replicas of the processes that are left have added
  // up.
  void adopt(const AnyVariable& variable, Origin origin = Origin::here());
  void adopt(const Strategy& old, Origin origin = Origin::here());

  // Returns the operations given in the options, or the default ones. The strategy owns them.
  CrossDeviceOps& cross_device_ops();
  // Returns the lower-level functions: runtime/extended.hpp.
  Extended extended();

  // Returns a replica of this process. Throws std::out_of_range for a wrong number.
  ReplicaContext& replica(int local);

 protected:
  Strategy(std::string name, detail::ResolvedOptions options);
  detail::StrategyState& state() { return *state_; }
  // Runs a job in all local replicas. Throws a ReplicaError if it fails in one, and undoes the changes in `log`, which
  // may be null.
  virtual void run_job(const std::function<void(int local)>& job, detail::UndoLog* log);

 private:
  friend struct detail::StrategyState;
  template <class F, class... A>
  auto run_in(detail::UndoLog* log, F& function, A&... arguments);
  // Combines the values of all replicas into the first of this process.
  template <class T>
  void reduce_in_place(NamedOp op, PerReplica<T>& value, Origin origin);

  // Is owned. It outlives the strategy if exit() in a replica's function destroys a strategy with static storage. The
  // other replicas then still run, and still find it here.
  detail::StrategyState* const state_;
};

// Runs the replicas of one process as threads.
class MirroredStrategy final : public Strategy {
 public:
  // Makes one replica on each GPU that this process sees, or a single one without GPUs.
  explicit MirroredStrategy(const StrategyOptions& options = {});
  // Makes replicas on processors. It divides the machine among them by packages, NUMA nodes, caches and cores.
  explicit MirroredStrategy(int replicas, const StrategyOptions& options = {});
  // Makes one replica on each of the devices: {"cpu:0", "cpu:1"} or {"gpu:0", "gpu:1"}.
  explicit MirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options = {});

 private:
  void log_devices();
};

// Runs one replica for each rank of a session, or several as threads of its process. Each rank chooses its own number.
// The session must outlive the strategy. All ranks make it together.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  // Do without a session of the program. The first of them calls start(); its session lasts until the program's end,
  // and all such strategies share it. A program that has a session must give it to the strategy instead.
  explicit MultiWorkerMirroredStrategy(const StrategyOptions& options = {});
  explicit MultiWorkerMirroredStrategy(int replicas, const StrategyOptions& options = {});
  explicit MultiWorkerMirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options = {});
  // Makes one replica, or `replicas` of them, on this rank.
  explicit MultiWorkerMirroredStrategy(Session& session, const StrategyOptions& options = {});
  MultiWorkerMirroredStrategy(Session& session, int replicas, const StrategyOptions& options = {});
  // Makes replicas on these devices of this rank: {"gpu:0"}.
  MultiWorkerMirroredStrategy(Session& session, const std::vector<std::string>& devices,
                              const StrategyOptions& options = {});

 private:
  MultiWorkerMirroredStrategy(Session& session, int replicas, const std::vector<std::string>* devices,
                              const StrategyOptions& options);
  MultiWorkerMirroredStrategy(const std::shared_ptr<Session>& session, int replicas,
                              const std::vector<std::string>* devices, const StrategyOptions& options);
  void begin_channels(Session& session);
  void begin_ranks(Session& session, std::vector<detail::ReplicaPlacement> placements);
  void begin_threads(Session& session, const std::vector<int>& all, std::vector<detail::ReplicaPlacement> placements);
  // Makes the training channel again after a failure.
  void renew_training();
  // Makes a communicator of the processes, as `parent` is one.
  Communicator of_ranks(Communicator& parent, std::string name, std::string member = "rank");
  bool wants_leader();
  void log_devices(const Session& session);
};

// Runs the only replica of a program.
class OneDeviceStrategy final : public Strategy {
 public:
  // Makes the only replica, on the processors of this process.
  explicit OneDeviceStrategy(const StrategyOptions& options = {});
  // Runs it on a device: "cpu:1" or "gpu:0".
  explicit OneDeviceStrategy(const std::string& device, const StrategyOptions& options = {});

 private:
  VariableLayout variable_layout(const VariableOptions& options) const override;
};

// Runs replicas of one process that share a single copy of each variable. Changes are combined first.
class CentralStorageStrategy final : public Strategy {
 public:
  // Makes one replica on each GPU that this process sees, or a single one without GPUs. Variables are in the host's
  // memory. If there is only one replica, they are on its device.
  explicit CentralStorageStrategy(const StrategyOptions& options = {});
  // Makes this many replicas as threads.
  explicit CentralStorageStrategy(int replicas, const StrategyOptions& options = {});
  // Makes one replica on each of the devices.
  explicit CentralStorageStrategy(const std::vector<std::string>& devices, const StrategyOptions& options = {});

 private:
  void log_devices();
  VariableLayout variable_layout(const VariableOptions& options) const override;
};

template <class F, class... A>
auto Strategy::run_in(detail::UndoLog* log, F& function, A&... arguments) {
  constexpr bool with_context = std::is_invocable_v<F&, ReplicaContext&, decltype(detail::part_of(arguments, 0))...>;
  static_assert(
      with_context || std::is_invocable_v<F&, decltype(detail::part_of(arguments, 0))...>,
      "lockstep: the replica function must be callable with the arguments of run(), a PerReplica<T> being a T, "
      "and may have a ReplicaContext& before them");
  (detail::check_argument(*this, arguments), ...);
  const auto call = [&](int local) -> decltype(auto) {
    if constexpr (with_context)
      return std::invoke(function, replica(local), detail::part_of(arguments, local)...);
    else
      return std::invoke(function, detail::part_of(arguments, local)...);
  };
  using Result = std::remove_cvref_t<decltype(call(0))>;
  if constexpr (std::is_void_v<Result>) {
    run_job([&](int local) { call(local); }, log);
  } else {
    std::deque<std::optional<Result>> results(static_cast<std::size_t>(num_local_replicas()));
    run_job([&](int local) { results[static_cast<std::size_t>(local)].emplace(call(local)); }, log);
    std::deque<Result> all;
    for (auto& each : results) all.push_back(std::move(*each));
    return detail::regroup(std::move(all));
  }
}

}  // namespace lockstep

#include "runtime/strategy_reduce.hpp"  // how values are combined and gathered outside of replicas
