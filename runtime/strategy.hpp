// SPDX-License-Identifier: Apache-2.0
// One program, whatever it runs on: a strategy runs a function on all replicas, and does in cross-replica context what
// concerns them all. Which replicas there are is the only difference between strategies. They may be made, destroyed
// and made again.
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

// What `distribute_values_from` calls its function with.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// What TensorFlow's run() takes beside the function. All of it concerns compilers of graphs; here it is taken, and
// changes nothing.
struct RunOptions {
  bool experimental_enable_dynamic_batch_size = true;
  bool experimental_bucketizing_dynamic_shape = false;
  bool experimental_xla_options = false;
};

class Strategy {
 public:
  // How variables that are made in its scope are kept: plainly, mirrored, or once for all.
  enum class VariablePlacement { plain, mirrored, central };

  virtual ~Strategy();
  virtual VariablePlacement variable_placement() const { return VariablePlacement::mirrored; }
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // "MirroredStrategy with 2 replicas"
  std::string describe() const;
  // Over how many replicas gradients are summed.
  int num_replicas_in_sync() const { return size_; }
  int num_local_replicas() const { return static_cast<int>(replicas_.size()); }
  // Where the cluster is known from; nothing for strategies of one process.
  const Resolver* cluster_resolver() const { return resolver_.get(); }
  Order order() const { return resolved_options_.order; }
  const CommunicationOptions& communication() const { return resolved_options_.communication; }
  // The same, but for what a call says otherwise: how long, and how much at once.
  CommunicationOptions communication_with(const CommunicationOptions& call);
  const Log& log() const { return resolved_options_.log; }

  // Of the replicas of this process: "/job:localhost/replica:0/task:0/device:CPU:0", and, for people, what that is.
  std::vector<std::string> devices() const;
  std::string explain() const;

  Scope scope() { return Scope(*this); }

  // Calls `function` in every replica of this process, at once: as `function(context, arguments...)`, or without the
  // context. Of a PerReplica each gets its own part, other arguments are the same for all; so are what it captures,
  // which it must not change. What it returns is a PerReplica. An exception in one replica cancels the others and is
  // thrown as a ReplicaError.
  template <class F, class... A>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto run(F&& function, A&&... arguments);
  template <class F, class... A>
  auto run(const RunOptions& /*options*/, F&& function, A&&... arguments) {
    return run(std::forward<F>(function), std::forward<A>(arguments)...);
  }

  // Combines the values of all replicas, and returns the result on every process. The average and the extremes of a
  // plain value are the value itself. A sum of one is refused with several replicas: nobody knows whose value it is.
  // Structures are combined leaf by leaf; tensors, of one shape, element by element.
  template <class T>
  T reduce(NamedOp op, PerReplica<T> value, Origin origin = Origin::here());
  // The same along an axis of each replica's tensor as well, or along several. Their lengths there may differ, and be
  // 0: the mean is by the number of all elements.
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
  // What run() returned, leaf by leaf: a structure whose leaves are PerReplica.
  template <class S>
  requires(detail::Structure<S>&& detail::PartOf<S>::differs) typename detail::PartOf<S>::Type
      reduce(NamedOp op, const S& structure, Origin origin = Origin::here());
  template <class T>
  requires(std::is_arithmetic_v<T>) T reduce(NamedOp op, T value) {
    detail::require_cross_replica(*this, "reduce");
    refuse_ambiguous(op, static_cast<double>(value));
    return value;
  }

  // Every replica's tensor one behind the other along an axis, along which their lengths may differ.
  template <class T>
  Tensor<T> gather(const PerReplica<Tensor<T>>& value, int axis, Origin origin = Origin::here());

  // Calls `function(variable, arguments...)` for each replica of this process, with its part of each PerReplica; what
  // it assigns to the variable goes to that replica's part alone. What it returns is regrouped, as by run().
  template <class T, class F, class... A>
  auto update(Variable<T>& variable, F&& function, const A&... arguments);

  // The parts of this process.
  template <class T>
  std::vector<T> local_results(const PerReplica<T>& value) const {
    return {value.local().begin(), value.local().end()};
  }
  template <class T>
  std::vector<Tensor<T>> local_results(const Variable<T>& variable) const;
  // Of a structure with PerReplica leaves, each replica's; a plain value stands alone.
  template <class S>
  std::vector<typename detail::PartOf<S>::Type> local_results(const S& value) const {
    if constexpr (detail::PartOf<S>::differs)
      return parts_of(value);
    else
      return {value};
  }

  // Each replica's value from a function of its number.
  template <class F>
  auto distribute_values_from(F&& function) {
    detail::require_cross_replica(*this, "distribute_values_from");
    const Scope inside(*this);
    std::deque<std::invoke_result_t<F&, ValueContext>> all;
    for (const ReplicaContext& each : replicas_)
      all.push_back(std::invoke(function, ValueContext{each.replica_id_in_sync_group(), size_}));
    return PerReplica(std::move(all));
  }

  // What was given, or what stands for it.
  CrossDeviceOps& cross_device_ops();
  // The verbs below these: runtime/extended.hpp.
  Extended extended();

  ReplicaContext& replica(int local) { return replicas_.at(static_cast<std::size_t>(local)); }

 protected:
  // How a replica becomes a member of all replicas; called by its own thread.
  using MakeMember = std::function<std::unique_ptr<Communicator>(int local)>;

  // The options, with what they leave open.
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
  static ResolvedOptions resolved_options_here(const StrategyOptions& options);  // completed by LOCKSTEP_ variables

  Strategy(std::string name, ResolvedOptions resolved_options);
  // `first` is the number of this process's first replica among all `size`.
  void begin(int local, int first, int size, const MakeMember& make);
  static constexpr int most_here = 256;  // replicas of a process
  void begin_here(int replicas);         // with all of them in this process
  void begin_here(std::vector<detail::ReplicaPlacement> placements);
  // Before the members are made; none: wherever the process is, so many.
  void set_placements(std::vector<detail::ReplicaPlacement> placements, int replicas);
  // As which task of a job this process has its devices, of so many.
  void set_home(std::string job, int task, int tasks) {
    home_ = {.job = std::move(job), .task = task};
    tasks_ = tasks;
  }
  std::string devices_text(char open = '(', char close = ')') const;
  void set_resolver(std::shared_ptr<Resolver> resolver) { resolver_ = std::move(resolver); }
  const ResolvedOptions& resolved_options() const { return resolved_options_; }
  void add_replica(int global, int size);
  // Members that are threads of this process, so many.
  static MakeMember members_here(int size, const ResolvedOptions& resolved_options);
  // After a failure; nothing where members cannot be made again.
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

  // One run, or one call for all, at a time; what merge_call does for all is part of a run.
  class RunGuard;
  void mend();
  void make_members(const MakeMember& make);
  void end_members() noexcept;
  void handle_failure(int local, const std::string& what);
  // Of a local replica; gpu::MemoryLocation::host where it is on processors.
  int gpu_of(int local) const { return placements_.empty() ? -1 : placements_[static_cast<std::size_t>(local)].gpu(); }
  // Each member by a thread of its own, as calls want that begin by asking the others.
  void run_apart(const std::function<Request(Communicator& member, int local)>& start, Origin origin,
                 const detail::CallSubject& subject);
  void in_new_threads(const ReplicaThreads::ReplicaFunction& job);
  // True if the program gave cross-device operations of its own, which then combine all values.
  bool has_own_ops() const { return resolved_options_.ops != nullptr; }
  void combine(NamedOp op, const std::vector<TensorViews>& values, const CommunicationOptions& options, Origin origin,
               const detail::CallSubject& subject);
  // Of the calls that replicas of this process are in; an Error mismatch where these are not about the same.
  detail::CallSubject common_subject(Origin origin);
  void log_communication_choice() const;
  void refuse_ambiguous(NamedOp op, double value) const;
  void check_parts(int parts) const;
  // Of every replica, in order. All processes call it.
  template <class T>
  std::vector<TensorShape> shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call, Origin origin);
  // What each replica says, as many numbers of all of them, in order; `mine` by local replica. All processes call it.
  template <class Numbers>
  std::vector<typename Numbers::value_type> values_of_all(const std::vector<Numbers>& mine, Origin origin,
                                                          const detail::CallSubject& subject = {});
  template <class T>
  void check_argument(const T& argument) const {
    detail::for_each_number_of_parts(argument, [&](int parts) { check_parts(parts); });
  }
  // Every local replica's part of a structure.
  template <class S>
  std::vector<typename detail::PartOf<S>::Type> parts_of(const S& structure) const {
    check_argument(structure);
    std::vector<typename detail::PartOf<S>::Type> all;
    for (int local = 0; local < num_local_replicas(); ++local) all.push_back(detail::take_part(structure, local));
    return all;
  }
  // All values at once, each by the member that it belongs to; perhaps in several threads.
  void run_all(const std::function<Request(Communicator& member, int local)>& start, Origin origin,
               const detail::CallSubject& subject = {});
  void give_up(std::vector<Request>& begun, const char* what, Origin origin);
  // Among the processes alone.
  void run_leader(const std::function<void(Communicator& leader)>& call);
  bool has_leader() const { return leader_ != nullptr || size_ == tasks_; }
  // Whether a name is that of another process's device.
  bool is_elsewhere(std::string_view device) const;
  Duration limit() const {
    return communication().timeout > Duration{} ? communication().timeout : resolved_options_.patience.limit;
  }
  void acquire_run_guard(std::optional<RunGuard>& guard);
  DeviceName device(int local) const;
  // The first replica here that is meant by a device's name.
  std::optional<int> local_on(std::string_view device) const;
  // A replica is about to do its next collective, or has done its last one.
  void count_collective(int local, Origin origin);
  void leave(int local);
  [[noreturn]] void refuse_difference(int local, int other) const;

  // Of each local replica: how many collectives it has begun in this job, where the last, and whether that was all.
  struct ReplicaProgress {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<const char*> file{""};
    std::atomic<int> line{0};
    std::atomic<bool> left{false};
  };

  // What replicas' threads use. It outlives the strategy if exit() in a replica's function destroys one with static
  // storage, because the other replicas still run.
  struct StrategyState {
    std::shared_ptr<const Strategy*> here;  // expires when the strategy ends; its variables look
    std::string name;
    ResolvedOptions resolved_options;
    CommunicationChoice communication_choice;
    std::shared_ptr<Resolver> resolver;
    std::shared_ptr<CrossDeviceOps> ops;               // there from the beginning: replicas may ask for them at once
    std::vector<detail::ReplicaPlacement> placements;  // by local replica; none: they are where the process is
    std::vector<detail::ReplicaLevel> levels;          // of those, and of local replicas that are anywhere
    DeviceName home;
    std::deque<ReplicaContext> replicas;
    std::vector<std::unique_ptr<Communicator>> communicators;
    std::unique_ptr<Communicator> leader;  // of several processes with several replicas, where it is wanted
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
  std::atomic<std::uint64_t> variables_{0};  // that were made, the same on all processes
  std::atomic<bool> warned_{false};          // that the implementation is not a call's matter
};

// Replicas of one process: threads.
class MirroredStrategy final : public Strategy {
 public:
  // One on each GPU that this process sees, or one alone where it sees none.
  explicit MirroredStrategy(const StrategyOptions& options = {});
  // On processors: the machine is divided among them: packages, NUMA nodes, caches, cores.
  explicit MirroredStrategy(int replicas, const StrategyOptions& options = {});
  // One on each of these: {"cpu:0", "cpu:1"}, {"gpu:0", "gpu:1"}.
  explicit MirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options = {});

 private:
  void say_devices() const;
  MakeMember make_again() override;
};

// A replica for each rank of a session, which must outlive it, or several: threads of its process, as many as each rank
// says for itself. All ranks make it together.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(Session& session, const StrategyOptions& options = {});
  MultiWorkerMirroredStrategy(Session& session, int replicas, const StrategyOptions& options = {});
  // On these devices of this rank: {"gpu:0"}.
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
  MakeMember make_again() override;  // of a single rank
};

// The one replica of a program that has no other.
class OneDeviceStrategy final : public Strategy {
 public:
  explicit OneDeviceStrategy(const StrategyOptions& options = {});
  // There: "cpu:1", "gpu:0".
  explicit OneDeviceStrategy(const std::string& device, const StrategyOptions& options = {});

 private:
  VariablePlacement variable_placement() const override { return VariablePlacement::plain; }
  MakeMember make_again() override;
};

// Replicas of one process whose variables are there once: all read it, and changes are brought together first.
class CentralStorageStrategy final : public Strategy {
 public:
  explicit CentralStorageStrategy(int replicas = 1, const StrategyOptions& options = {});
  // One on each of these, the variables on the first.
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
