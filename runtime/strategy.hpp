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
#include "runtime/crew.hpp"
#include "runtime/devices.hpp"
#include "runtime/named_op.hpp"
#include "runtime/replica_context.hpp"
#include "runtime/values/fold.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class Extended;
class Resolver;
template <class T>
class Variable;

namespace detail {
class VariableBase;
}

// What `distribute_values_from` calls its function with.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

class Strategy {
 public:
  // How variables that are made in its scope are kept: plainly, mirrored, or once for all.
  enum class Keeps { plain, mirrored, central };

  virtual ~Strategy();
  virtual Keeps keeps() const { return Keeps::mirrored; }
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // "MirroredStrategy with 2 replicas"
  std::string describe() const;
  // Over how many replicas gradients are summed.
  int num_replicas_in_sync() const { return size_; }
  int num_local_replicas() const { return static_cast<int>(replicas_.size()); }
  // Where the cluster is known from; nothing for strategies of one process.
  const Resolver* cluster_resolver() const { return resolver_.get(); }
  Order order() const { return terms_.order; }
  const CommunicationOptions& communication() const { return terms_.communication; }
  // The same, but for what a call says otherwise: how long, and how much at once.
  CommunicationOptions communication_with(const CommunicationOptions& call);
  const Log& log() const { return terms_.log; }

  // Of the replicas of this process: "/job:localhost/replica:0/task:0/device:CPU:0", and, for people, what that is.
  std::vector<std::string> devices() const;
  std::string explain() const;

  Scope scope() { return Scope(*this); }

  // Calls `function` in every replica of this process, at once: as `function(context, arguments...)`, or without the
  // context. Of a PerReplica each gets its own part, other arguments are the same for all; so are what it captures,
  // which it must not change. What it returns is a PerReplica. An exception in one replica cancels the others and is
  // thrown as a ReplicaError.
  template <class F, class... A>
  auto run(F&& function, A&&... arguments);

  // Everybody's value combined, on every process. Of a plain value the average and the extremes are itself, and a sum
  // is refused with several replicas: nobody knows whose it is.
  // A structure, leaf by leaf; tensors, of one shape, element by element.
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
  template <class T>
  std::vector<T> local_results(const T& value) const {
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
  struct Terms {
    Order order = Order::reproducible;
    Patience patience = {};
    Log log = Log();
    std::string algorithm = {};
    bool node_memory = true;
    bool pin = true;
    std::shared_ptr<CrossDeviceOps> ops = nullptr;
    CommunicationOptions communication = {};
  };
  static Terms terms_here(const StrategyOptions& options);  // as the LOCKSTEP_ variables say

  Strategy(std::string name, Terms terms);
  // `first` is the number of this process's first replica among all `size`.
  void begin(int local, int first, int size, const MakeMember& make);
  static constexpr int most_here = 256;  // replicas of a process
  void begin_here(int replicas);         // with all of them in this process
  void begin_here(std::vector<detail::Seat> seats);
  void sit(std::vector<detail::Seat> seats) { seats_ = std::move(seats); }
  std::string devices_in_words() const;
  void set_resolver(std::shared_ptr<Resolver> resolver) { resolver_ = std::move(resolver); }
  const Terms& terms() const { return terms_; }
  void add_replica(int global, int size);
  // Members that are threads of this process, so many.
  static MakeMember members_here(int size, const Terms& terms);
  // After a failure; nothing where members cannot be made again.
  virtual MakeMember make_again() { return {}; }
  virtual void run_job(const Crew::Job& job);
  virtual Communicator& member(int local) { return *communicators_.at(static_cast<std::size_t>(local)); }
  [[noreturn]] void throw_first(const std::vector<Crew::Failure>& failures) const;

 private:
  friend class ReplicaContext;
  friend class ReplicaGroup;
  friend class CrossDeviceOps;
  friend class detail::VariableBase;

  // One run, or one call for all, at a time; what merge_call does for all is part of a run.
  class Turn;
  void mend();
  void make_members(const MakeMember& make);
  void alarm(int local, const std::string& what);
  // Whether the program has said how values are combined; if so, by that.
  bool has_own_ops() const { return terms_.ops != nullptr; }
  void combine(NamedOp op, const std::vector<Views>& values, const CommunicationOptions& options, Origin origin);
  void say_way() const;
  void refuse_ambiguous(NamedOp op, double value) const;
  void check_parts(int parts) const;
  // Of every replica, in order. All processes call it.
  template <class T>
  std::vector<TensorShape> shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call, Origin origin);
  // What each replica says, as many numbers of all of them, in order; `mine` by local replica. All processes call it.
  template <class Numbers>
  std::vector<typename Numbers::value_type> everybodys(const std::vector<Numbers>& mine, Origin origin);
  template <class T>
  void check_argument(const T& argument) const {
    detail::for_each_number_of_parts(argument, [&](int parts) { check_parts(parts); });
  }
  // All values at once, each by the member that it belongs to.
  void run_all(const std::function<Request(Communicator& member, int local)>& start, Origin origin);
  // A replica is about to do its next collective, or has done its last one.
  void count_collective(int local, Origin origin);
  void leave(int local);
  [[noreturn]] void refuse_difference(int local, int other) const;

  // Of each local replica: how many collectives it has begun in this job, where the last, and whether that was all.
  struct Progress {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<const char*> file{""};
    std::atomic<int> line{0};
    std::atomic<bool> left{false};
  };

  std::shared_ptr<const Strategy*> here_ = std::make_shared<const Strategy*>(this);  // until it goes
  std::string name_;
  Terms terms_;
  Way way_;
  int size_ = 1;
  std::shared_ptr<Resolver> resolver_;
  std::shared_ptr<CrossDeviceOps> ops_;  // there from the beginning: replicas may ask for them at once
  std::vector<detail::Seat> seats_;      // by local replica; none: they are where the process is
  std::deque<ReplicaContext> replicas_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<Progress[]> progress_;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Crew> crew_;
  std::atomic<bool> running_{false};
  std::atomic<bool> warned_{false};  // that the implementation is not a call's matter
};

// Replicas of one process: threads.
class MirroredStrategy final : public Strategy {
 public:
  // The machine is divided among them: packages, NUMA nodes, caches, cores.
  explicit MirroredStrategy(int replicas = 1, const StrategyOptions& options = {});
  // One on each of these: {"cpu:0", "cpu:1"}.
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

 private:
  void begin_ranks(Session& session);
  void begin_threads(Session& session, const std::vector<int>& all);
  void say_devices(const Session& session) const;
  MakeMember make_again() override;  // of a single rank
};

// The one replica of a program that has no other.
class OneDeviceStrategy final : public Strategy {
 public:
  explicit OneDeviceStrategy(const StrategyOptions& options = {});

 private:
  Keeps keeps() const override { return Keeps::plain; }
  MakeMember make_again() override;
};

// Replicas of one process whose variables are there once: all read it, and changes are brought together first.
class CentralStorageStrategy final : public Strategy {
 public:
  explicit CentralStorageStrategy(int replicas = 1, const StrategyOptions& options = {});

 private:
  Keeps keeps() const override { return num_local_replicas() > 1 ? Keeps::central : Keeps::plain; }
  MakeMember make_again() override;
};

template <class F, class... A>
auto Strategy::run(F&& function, A&&... arguments) {
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

template <class T>
T Strategy::reduce(NamedOp op, PerReplica<T> value, Origin origin) {
  static_assert(!std::is_same_v<T, bool>, "lockstep: to count, reduce integers");
  detail::require_cross_replica(*this, "reduce");
  check_parts(value.size());
  for (int local = 1; local < value.size(); ++local) detail::require_alike(value[0], value[local]);
  if (has_own_ops()) {
    std::vector<Views> replicas;
    replicas.reserve(replicas_.size());
    for (int local = 0; local < value.size(); ++local) replicas.push_back(detail::views_of_one(value[local]));
    combine(op, detail::transposed(replicas), {}, origin);
    return std::move(value[0]);
  }
  std::deque<Batch> batches;
  run_all(
      [&](Communicator& member, int local) {
        return op.with([&](auto known) {
          batches.push_back(detail::batch_of(member, value[local], known, origin));
          return batches.back().start(origin);
        });
      },
      origin);
  return std::move(value[0]);
}

template <class Numbers>
std::vector<typename Numbers::value_type> Strategy::everybodys(const std::vector<Numbers>& mine, Origin origin) {
  const std::size_t numbers = static_cast<std::size_t>(size_) * mine.front().size();
  std::vector<std::vector<typename Numbers::value_type>> all(mine.size(),
                                                             std::vector<typename Numbers::value_type>(numbers));
  run_all(
      [&](Communicator& member, int local) {
        const auto i = static_cast<std::size_t>(local);
        return member.all_gather_async(mine[i], all[i], origin);
      },
      origin);
  return std::move(all.front());
}

template <class T>
std::vector<TensorShape> Strategy::shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call,
                                                 Origin origin) {
  detail::require_cross_replica(*this, call);
  check_parts(value.size());
  std::vector<detail::ShapeWords> mine;
  for (const Tensor<T>& part : value.local()) mine.push_back(detail::words_of(part.shape()));
  return detail::shapes_of(everybodys(mine, origin));
}

template <class T>
Tensor<T> Strategy::reduce(NamedOp op, const PerReplica<Tensor<T>>& value, std::vector<int> axes, Origin origin) {
  // All look at everybody's shapes, so that all refuse what one of them has.
  std::uint64_t count = 0;
  const std::vector<TensorShape> shapes = shapes_of_all(value, "reduce", origin);
  for (const TensorShape& each : shapes) {
    detail::require_same_shape(detail::folded_shape(shapes.front(), axes), detail::folded_shape(each, axes));
    count += detail::number_folded(each, axes);
  }
  const auto folded = [&]<class Wide>(Wide /*for its type*/) {
    std::deque<Tensor<Wide>> parts;
    for (const Tensor<T>& each : value.local()) parts.push_back(detail::fold<Wide>(op.op(), each, axes));
    return parts;
  };
  if (op.op() != ReduceOp::avg)
    return reduce(op, PerReplica(detail::all_converted<T>(folded(detail::Sums<T>()))), origin);
  // The mean of means would weigh elements by how they are spread.
  auto sums = reduce(sum, PerReplica(folded(detail::Means<T>())), origin);
  for (auto& each : sums) each = detail::divided(each, count);
  return detail::converted<T>(sums);
}

template <class T>
Tensor<T> Strategy::gather(const PerReplica<Tensor<T>>& value, int axis, Origin origin) {
  const detail::Gathering gathering(shapes_of_all(value, "gather", origin), axis);
  std::vector<Tensor<T>> all(static_cast<std::size_t>(value.size()),
                             Tensor<T>(TensorShape({static_cast<std::int64_t>(gathering.count())})));
  run_all(
      [&](Communicator& member, int local) {
        return member.all_gather_v_async(value[local], all[static_cast<std::size_t>(local)], gathering.counts(), {},
                                         origin);
      },
      origin);
  return gathering.assemble(all.front());
}

}  // namespace lockstep
