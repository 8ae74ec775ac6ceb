// SPDX-License-Identifier: Apache-2.0
// Runs one program on any number of replicas. A strategy calls a function in all replicas, and combines their values
// in cross-replica context. Strategies differ only in their replicas. They can be made, destroyed and made again.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/communication.hpp"
#include "runtime/devices.hpp"
#include "runtime/named_op.hpp"
#include "runtime/replica_context.hpp"
#include "runtime/replica_levels.hpp"
#include "runtime/replica_threads.hpp"
#include "runtime/values/fold.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class Extended;
class Resolver;
template <class T>
class Variable;

namespace detail {
class ScopedContext;
class VariableBase;
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
  // Tells how variables made in its scope are kept: plain, mirrored at each replica, or as one central copy.
  enum class VariablePlacement { plain, mirrored, central };

  virtual ~Strategy();
  // Returns how variables are kept.
  virtual VariablePlacement variable_placement() const { return VariablePlacement::mirrored; }
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Returns a text for people: "MirroredStrategy with 2 replicas".
  std::string describe() const;
  // Returns the number of replicas of all processes. Gradients are summed over these.
  int num_replicas_in_sync() const { return size_; }
  // Returns the number of replicas of this process.
  int num_local_replicas() const { return static_cast<int>(replicas_.size()); }
  // Returns the source of the cluster, which the strategy owns; null for strategies of one process.
  const Resolver* cluster_resolver() const { return resolver_.get(); }
  // Returns the order of additions.
  Order order() const { return resolved_options_.order; }
  // Returns the options of calls that have none of their own.
  const CommunicationOptions& communication() const { return resolved_options_.communication; }
  // Returns the strategy's options, overridden by those of a call: the timeout and the bytes per pack.
  CommunicationOptions communication_with(const CommunicationOptions& call);
  const Log& log() const { return resolved_options_.log; }

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
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto run(F&& function, A&&... arguments);
  template <class F, class... A>
  auto run(const RunOptions& /*options*/, F&& function, A&&... arguments) {
    return run(std::forward<F>(function), std::forward<A>(arguments)...);
  }

  // Combines the values of all replicas, and returns the result on every process. Structures are combined leaf by
  // leaf; tensors, which must have one shape, element by element.
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
    refuse_ambiguous(op, static_cast<double>(value));
    return value;
  }

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
  std::vector<typename detail::PartOf<S>::Type> local_results(const S& value) const {
    if constexpr (detail::PartOf<S>::differs)
      return parts_of(value);
    else
      return {value};
  }

  // Returns a PerReplica of `function(ValueContext)` for each replica of this process. Calls it in this thread.
  template <class F>
  auto distribute_values_from(F&& function) {
    detail::require_cross_replica(*this, "distribute_values_from");
    const Scope inside(*this);
    std::deque<std::invoke_result_t<F&, ValueContext>> all;
    for (const ReplicaContext& each : replicas_)
      all.push_back(std::invoke(function, ValueContext{each.replica_id_in_sync_group(), size_}));
    return PerReplica(std::move(all));
  }

  // Returns the operations given in the options, or the default ones. The strategy owns them.
  CrossDeviceOps& cross_device_ops();
  // Returns the lower-level functions: runtime/extended.hpp.
  Extended extended();

  // Returns a replica of this process. Throws std::out_of_range for a wrong number.
  ReplicaContext& replica(int local) { return replicas_.at(static_cast<std::size_t>(local)); }

 protected:
  // Makes the communicator of a local replica among all replicas. The replica's own thread calls it.
  using MakeMember = std::function<std::unique_ptr<Communicator>(int local)>;

  // Holds the options, with all defaults filled in.
  struct ResolvedOptions {
    Order order = Order::reproducible;
    Patience patience = {};
    Log log = Log();
    std::string algorithm = {};
    bool node_memory = true;
    bool nccl = true;
    bool strict = false;
    bool pin = true;
    std::shared_ptr<CrossDeviceOps> ops = nullptr;
    CommunicationOptions communication = {};
  };
  // Fills in the options from the LOCKSTEP_ variables.
  static ResolvedOptions resolved_options_here(const StrategyOptions& options);

  Strategy(std::string name, ResolvedOptions resolved_options);
  // Makes the replicas and their members. `first` is the number of this process's first replica among all `size`.
  void begin(int local, int first, int size, const MakeMember& make);
  static constexpr int most_here = 256;  // Limits the replicas of one process.
  void begin_here(int replicas);         // Makes all replicas in this process.
  void begin_here(std::vector<detail::ReplicaPlacement> placements);
  // Sets where replicas run, before the members are made. An empty list gives no placement to the `replicas` replicas.
  void set_placements(std::vector<detail::ReplicaPlacement> placements, int replicas);
  // Sets the job and task under which this process names its devices, and the number of tasks.
  void set_home(std::string job, int task, int tasks) {
    home_ = {.job = std::move(job), .task = task};
    tasks_ = tasks;
  }
  std::string devices_text(char open = '(', char close = ')') const;
  void set_resolver(std::shared_ptr<Resolver> resolver) { resolver_ = std::move(resolver); }
  const ResolvedOptions& resolved_options() const { return resolved_options_; }
  void add_replica(int global, int size);
  // Returns the maker of members that are threads of this process, `size` in all.
  static MakeMember members_here(int size, const ResolvedOptions& resolved_options);
  // Runs a job in all local replicas; failures throw a ReplicaError.
  // Returns the function that makes members again after a failure. By default it is empty: members cannot be made
  // again.
  virtual MakeMember make_again() { return {}; }
  virtual void run_job(const ReplicaThreads::ReplicaFunction& job);
  virtual Communicator& member(int local) { return *communicators_.at(static_cast<std::size_t>(local)); }
  // Sets the communicator that has one member for each process. None is needed if each process has one replica.
  void set_leader(std::unique_ptr<Communicator> leader);
  [[noreturn]] void throw_first(const std::vector<ReplicaThreads::ReplicaFailure>& failures) const;

 private:
  friend class ReplicaContext;
  friend class Extended;
  friend class ReplicaGroup;
  friend class CrossDeviceOps;
  friend class detail::ScopedContext;
  friend class detail::VariableBase;

  // Is held during a run, or a call for all. Calls made inside merge_call belong to the run.
  class RunGuard;
  void mend();
  void make_members(const MakeMember& make);
  void end_members() noexcept;
  void handle_failure(int local, const std::string& what);
  // Returns the GPU of a local replica, or gpu::MemoryLocation::host.
  int gpu_of(int local) const { return placements_.empty() ? -1 : placements_[static_cast<std::size_t>(local)].gpu(); }
  // Starts each member's call in a thread of its own. Calls that first ask the other members need this.
  void run_apart(const std::function<Request(Communicator& member, int local)>& start, Origin origin,
                 const detail::CallSubject& subject);
  void in_new_threads(const ReplicaThreads::ReplicaFunction& job);
  // True if the program gave cross-device operations of its own, which then combine all values.
  bool has_own_ops() const { return resolved_options_.ops != nullptr; }
  void combine(NamedOp op, const std::vector<TensorViews>& values, const CommunicationOptions& options, Origin origin,
               const detail::CallSubject& subject);
  // Returns the subject of the collectives that this process's replicas are in. Throws Error mismatch if they differ.
  detail::CallSubject common_subject(Origin origin);
  void log_communication_choice() const;
  void refuse_ambiguous(NamedOp op, double value) const;
  void check_parts(int parts) const;
  // Returns the shapes of every replica, in order. All processes call it.
  template <class T>
  std::vector<TensorShape> shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call, Origin origin);
  // Gathers an equal number of values from every replica, in order; `mine` holds those of the local replicas. All
  // processes call it.
  template <class Numbers>
  std::vector<typename Numbers::value_type> values_of_all(const std::vector<Numbers>& mine, Origin origin,
                                                          const detail::CallSubject& subject = {});
  template <class T>
  void check_argument(const T& argument) const {
    detail::for_each_number_of_parts(argument, [&](int parts) { check_parts(parts); });
  }
  // Returns every local replica's part of a structure.
  template <class S>
  std::vector<typename detail::PartOf<S>::Type> parts_of(const S& structure) const {
    check_argument(structure);
    std::vector<typename detail::PartOf<S>::Type> all;
    for (int local = 0; local < num_local_replicas(); ++local) all.push_back(detail::take_part(structure, local));
    return all;
  }
  // Starts a call of every local member, perhaps in several threads, and waits for all.
  void run_all(const std::function<Request(Communicator& member, int local)>& start, Origin origin,
               const detail::CallSubject& subject = {});
  void give_up(std::vector<Request>& begun, const char* what, Origin origin);
  // Calls a function with the communicator of the processes.
  void run_leader(const std::function<void(Communicator& leader)>& call);
  bool has_leader() const { return leader_ != nullptr || size_ == tasks_; }
  // True if the name is that of another process's device.
  bool is_elsewhere(std::string_view device) const;
  Duration limit() const {
    return communication().timeout > Duration{} ? communication().timeout : resolved_options_.patience.limit;
  }
  void acquire_run_guard(std::optional<RunGuard>& guard);
  DeviceName device(int local) const;
  // Returns the first local replica on the device; nothing if there is none.
  std::optional<int> local_on(std::string_view device) const;
  // Count a replica's next collective, and note that it has done its last one.
  void count_collective(int local, Origin origin);
  void leave(int local);
  [[noreturn]] void refuse_difference(int local, int other) const;

  // Counts the collectives that a local replica has begun in this job. It keeps the place of the last, and whether the
  // job is over.
  struct ReplicaProgress {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<const char*> file{""};
    std::atomic<int> line{0};
    std::atomic<bool> left{false};
  };

  // Holds the objects that replicas' threads use. It outlives the strategy if exit() in a replica's function destroys
  // a strategy with static storage, because the other replicas still run.
  struct StrategyState {
    std::shared_ptr<const Strategy*> here;  // Expires when the strategy ends. Its variables check it.
    std::string name;
    ResolvedOptions resolved_options;
    CommunicationChoice communication_choice;
    std::shared_ptr<Resolver> resolver;
    std::shared_ptr<CrossDeviceOps> ops;  // Exists from the beginning, since all replicas may ask for it at once.
    // Is indexed by local replica. Empty if replicas have no placement.
    std::vector<detail::ReplicaPlacement> placements;
    std::vector<detail::ReplicaLevel> levels;  // Holds the levels at which local replicas meet.
    DeviceName home;
    std::deque<ReplicaContext> replicas;
    std::vector<std::unique_ptr<Communicator>> communicators;
    std::unique_ptr<Communicator> leader;  // Is set for several processes with several replicas, if it is needed.
    std::unique_ptr<ReplicaProgress[]> progress;
    std::unique_ptr<ReplicaBarrier> barrier;
    std::unique_ptr<ReplicaThreads> replica_threads;
  };
  std::unique_ptr<StrategyState> state_ = std::make_unique<StrategyState>();
  std::shared_ptr<const Strategy*>& here_ = state_->here;
  std::string& name_ = state_->name;
  ResolvedOptions& resolved_options_ = state_->resolved_options;
  CommunicationChoice& communication_choice_ = state_->communication_choice;
  std::shared_ptr<Resolver>& resolver_ = state_->resolver;
  std::shared_ptr<CrossDeviceOps>& ops_ = state_->ops;
  std::vector<detail::ReplicaPlacement>& placements_ = state_->placements;
  std::vector<detail::ReplicaLevel>& levels_ = state_->levels;
  DeviceName& home_ = state_->home;
  std::deque<ReplicaContext>& replicas_ = state_->replicas;
  std::vector<std::unique_ptr<Communicator>>& communicators_ = state_->communicators;
  std::unique_ptr<Communicator>& leader_ = state_->leader;
  std::unique_ptr<ReplicaProgress[]>& progress_ = state_->progress;
  std::unique_ptr<ReplicaBarrier>& barrier_ = state_->barrier;
  std::unique_ptr<ReplicaThreads>& replica_threads_ = state_->replica_threads;
  int size_ = 1;
  int tasks_ = 1;
  std::atomic<bool> running_{false};
  std::atomic<std::uint64_t> variables_{0};  // Counts the variables made; equal on all processes.
  std::atomic<bool> warned_{false};          // True after the warning that a call cannot choose the implementation.
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
  void say_devices() const;
  MakeMember make_again() override;
};

// Runs one replica for each rank of a session, or several as threads of its process. Each rank chooses its own number.
// The session must outlive the strategy. All ranks make it together.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(Session& session, const StrategyOptions& options = {});
  MultiWorkerMirroredStrategy(Session& session, int replicas, const StrategyOptions& options = {});
  // Makes replicas on these devices of this rank: {"gpu:0"}.
  MultiWorkerMirroredStrategy(Session& session, const std::vector<std::string>& devices,
                              const StrategyOptions& options = {});

 private:
  MultiWorkerMirroredStrategy(Session& session, int replicas, const std::vector<std::string>* devices,
                              const StrategyOptions& options);
  void begin_ranks(Session& session, std::vector<detail::ReplicaPlacement> placements);
  void begin_threads(Session& session, const std::vector<int>& all, std::vector<detail::ReplicaPlacement> placements);
  std::unique_ptr<Communicator> of_ranks(Session& session, const char* name) const;
  bool wants_leader() const;
  void say_devices(const Session& session) const;
  MakeMember make_again() override;  // Works for a single rank only.
};

// Runs the only replica of a program.
class OneDeviceStrategy final : public Strategy {
 public:
  explicit OneDeviceStrategy(const StrategyOptions& options = {});
  // Runs it on a device: "cpu:1" or "gpu:0".
  explicit OneDeviceStrategy(const std::string& device, const StrategyOptions& options = {});

 private:
  VariablePlacement variable_placement() const override { return VariablePlacement::plain; }
  MakeMember make_again() override;
};

// Runs replicas of one process that share a single copy of each variable. Changes are combined first.
class CentralStorageStrategy final : public Strategy {
 public:
  explicit CentralStorageStrategy(int replicas = 1, const StrategyOptions& options = {});
  // Makes one replica on each of the devices, and keeps variables on the first.
  explicit CentralStorageStrategy(const std::vector<std::string>& devices, const StrategyOptions& options = {});

 private:
  void say_devices() const;
  VariablePlacement variable_placement() const override {
    return num_local_replicas() > 1 ? VariablePlacement::central : VariablePlacement::plain;
  }
  MakeMember make_again() override;
};

template <class F, class... A>
requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto Strategy::run(F&& function, A&&... arguments) {
  constexpr bool with_context = std::is_invocable_v<F&, ReplicaContext&, decltype(detail::part_of(arguments, 0))...>;
  static_assert(
      with_context || std::is_invocable_v<F&, decltype(detail::part_of(arguments, 0))...>,
      "lockstep: the replica function must be callable with the arguments of run(), a PerReplica<T> being a T, "
      "and may have a ReplicaContext& before them");
  (check_argument(arguments), ...);
  const auto call = [&](int local) -> decltype(auto) {
    if constexpr (with_context)
      return std::invoke(function, replica(local), detail::part_of(arguments, local)...);
    else
      return std::invoke(function, detail::part_of(arguments, local)...);
  };
  using Result = std::remove_cvref_t<decltype(call(0))>;
  if constexpr (std::is_void_v<Result>) {
    run_job([&](int local) { call(local); });
  } else {
    std::deque<std::optional<Result>> results(replicas_.size());
    run_job([&](int local) { results[static_cast<std::size_t>(local)].emplace(call(local)); });
    std::deque<Result> all;
    for (auto& each : results) all.push_back(std::move(*each));
    return detail::regroup(std::move(all));
  }
}

}  // namespace lockstep

#include "runtime/strategy_reduce.hpp"  // how values are combined and gathered outside of replicas
