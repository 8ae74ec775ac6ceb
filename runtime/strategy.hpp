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

#include "runtime/crew.hpp"
#include "runtime/named_op.hpp"
#include "runtime/replica_context.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class Resolver;

// What `distribute_values_from` calls its function with.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

struct StrategyOptions {
  // The same bits whatever the layout of replicas on processes and nodes; fast gives that up.
  Order order = Order::reproducible;
  // Nothing: as the LOCKSTEP_ variables say; over ranks, the session's.
  std::optional<Patience> patience = std::nullopt;
  std::optional<Log> log = std::nullopt;
};

class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // "MirroredStrategy with 2 replicas"
  std::string describe() const;
  // Over how many replicas gradients are summed.
  int num_replicas_in_sync() const { return size_; }
  int num_local_replicas() const { return static_cast<int>(replicas_.size()); }
  // Where the cluster is known from; nothing for strategies of one process, and for ranks, which know each other.
  const Resolver* cluster_resolver() const { return resolver_.get(); }
  Order order() const { return terms_.order; }
  const Log& log() const { return terms_.log; }

  Scope scope() { return Scope(*this); }

  // Calls `function` in every replica of this process, at once: as `function(context, arguments...)`, or without the
  // context. Of a PerReplica each gets its own part, other arguments are the same for all; so are what it captures,
  // which it must not change. What it returns is a PerReplica. An exception in one replica cancels the others and is
  // thrown as a ReplicaError.
  template <class F, class... A>
  auto run(F&& function, A&&... arguments);

  // Everybody's value combined, on every process. Of a plain value the average and the extremes are itself, and a sum
  // is refused with several replicas: nobody knows whose it is.
  template <class T>
  requires(std::is_arithmetic_v<T>) T reduce(NamedOp op, const PerReplica<T>& value, Origin origin = Origin::here());
  template <class T>
  requires(std::is_arithmetic_v<T>) T reduce(NamedOp op, T value) {
    detail::require_cross_replica(*this, "reduce");
    refuse_ambiguous(op, static_cast<double>(value));
    return value;
  }

  // The parts of this process.
  template <class T>
  std::vector<T> local_results(const PerReplica<T>& value) const {
    return {value.local().begin(), value.local().end()};
  }
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
  };
  static Terms terms_here(const StrategyOptions& options);  // as the LOCKSTEP_ variables say

  Strategy(std::string name, Terms terms) : name_(std::move(name)), terms_(std::move(terms)) {}
  // `first` is the number of this process's first replica among all `size`.
  void begin(int local, int first, int size, const MakeMember& make);
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

  // One run, or one call for all, at a time; what merge_call does for all is part of a run.
  class Turn;
  void mend();
  void make_members(const MakeMember& make);
  void alarm(int local, const std::string& what);
  void refuse_ambiguous(NamedOp op, double value) const;
  void check_parts(int parts) const;
  template <class T>
  void check_argument(const T& argument) const {
    if constexpr (detail::AtReplica<T>::own) check_parts(argument.size());
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

  std::string name_;
  Terms terms_;
  int size_ = 1;
  std::shared_ptr<Resolver> resolver_;
  std::deque<ReplicaContext> replicas_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<Progress[]> progress_;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Crew> crew_;
  std::atomic<bool> running_{false};
};

// Replicas of one process: threads.
class MirroredStrategy final : public Strategy {
 public:
  explicit MirroredStrategy(int replicas = 1, const StrategyOptions& options = {});

 private:
  MakeMember make_again() override;
};

// A replica for each rank of a session, which must outlive it. All ranks make it together.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(Session& session, const StrategyOptions& options = {});
};

// The one replica of a program that has no other.
class OneDeviceStrategy final : public Strategy {
 public:
  explicit OneDeviceStrategy(const StrategyOptions& options = {});

 private:
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
    return PerReplica<Result>(std::move(all));
  }
}

template <class T>
requires(std::is_arithmetic_v<T>) T Strategy::reduce(NamedOp op, const PerReplica<T>& value, Origin origin) {
  static_assert(!std::is_same_v<T, bool>, "lockstep: to count, reduce integers");
  detail::require_cross_replica(*this, "reduce");
  check_parts(value.size());
  std::vector<T> mine(value.local().begin(), value.local().end());
  run_all(
      [&](Communicator& member, int local) {
        const std::span<T> one(&mine[static_cast<std::size_t>(local)], 1);
        return op.with([&](auto known) { return member.all_reduce_async(std::span<T>(one), known, origin); });
      },
      origin);
  return mine.front();
}

}  // namespace lockstep
