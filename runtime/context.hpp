// SPDX-License-Identifier: Apache-2.0
// Where a thread is: outside of all strategies, in the scope of one (it speaks for all replicas), or in a replica. The
// states form a stack for each thread; what a call needs, it checks.
#pragma once

#include <memory>
#include <string_view>

#include "topology/base/log.hpp"

namespace lockstep {

class Strategy;
class ReplicaContext;
namespace gpu {
class DeviceGuard;
}

// As long as it lives, its strategy is the current one of this thread. Of the same strategy there may be several, one
// in the other; of another one inside is an Error usage. They end in the reverse order. That of the default strategy
// keeps others out, and changes nothing else.
class [[nodiscard]] Scope {
 public:
  explicit Scope(Strategy& strategy);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Log log_;
  const void* frame_;
};

// The strategy of the innermost scope; the default strategy, of one replica, outside of all.
Strategy& get_strategy();
bool has_strategy();
// For the whole program, where no scope says otherwise; nothing: the default strategy again. Not inside a scope.
void set_strategy(Strategy* strategy);

// Whether this thread speaks for all replicas. Otherwise it is in a replica: replica_context() is that, or the default
// strategy's only one outside of all scopes.
bool in_cross_replica_context();
ReplicaContext* replica_context();  // none in cross-replica context

namespace detail {

// In a replica's thread, or, without a replica, where one of them speaks for all; with a part, while that replica's
// part of a variable is changed by whoever speaks for all. A replica's GPU is the thread's own then.
class ScopedContext {
 public:
  ScopedContext(Strategy& strategy, ReplicaContext* replica, int part = -1);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  std::unique_ptr<gpu::DeviceGuard> gpu_;
  const void* frame_;
};

// For whom a call on something of the strategy's is made: for all replicas, by one of them, to one replica's part, or
// by a replica of another strategy, to something that was made outside of all strategies.
enum class CallerKind { all, replica, part, foreign_replica };
struct CallerContext {
  CallerKind kind = CallerKind::all;
  ReplicaContext* replica = nullptr;  // kind replica
  int local = 0;                      // kinds replica and part
};
CallerContext caller_context(const Strategy& strategy);  // an Error usage in the scope of another strategy

// Whether this thread speaks for all replicas in the middle of a run of the strategy.
bool is_merged(const Strategy& strategy);
// A strategy goes: it is nobody's current one any more.
void forget(const Strategy& strategy);

// For calls that speak for all replicas of the strategy: refuses in a replica, and in another strategy's scope.
void require_cross_replica(const Strategy& strategy, std::string_view call);

}  // namespace detail
}  // namespace lockstep
