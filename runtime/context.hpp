// SPDX-License-Identifier: Apache-2.0
// Keeps each thread's position: outside all strategies, in the scope of one (it speaks for all replicas), or in a
// replica. The positions form a stack for each thread, and calls check it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "topology/base/log.hpp"

namespace lockstep {

class Strategy;
class ReplicaContext;
namespace gpu {
class DeviceGuard;
}

// Makes its strategy the current one of this thread while it lives. Scopes of one strategy nest; a scope of another
// strategy inside throws Error usage. Scopes end in reverse order. The scope of the default strategy only keeps other
// strategies out.
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

// Returns the strategy of the innermost scope. Outside all scopes it is that of set_strategy(), or the default
// strategy of one replica.
Strategy& get_strategy();
// True if get_strategy() is not the default strategy.
bool has_strategy();
// Sets the strategy of the whole program, used outside all scopes. Null restores the default strategy. Throws Error
// usage inside a scope.
void set_strategy(Strategy* strategy);

// True if this thread speaks for all replicas. Otherwise it is in a replica, which replica_context() returns. Outside
// all scopes that is the default strategy's only replica.
bool in_cross_replica_context();
ReplicaContext* replica_context();  // Returns null in cross-replica context.
// Returns the number in the sync group of the replica whose part is being changed, in the function given to update().
// Returns nothing elsewhere. If all replicas share the part, it is the first replica's.
std::optional<int> update_replica();

// Holds the context of a thread, for threads that work for it: prefetching, callbacks. It may be copied, and may
// outlive its strategy.
class ContextHandle {
 public:
  // Makes the context that of this thread while it lives. The thread then asks for its strategy and replica, reads
  // variables and makes tensors as the replica does. Collectives, merge_call and changes of variables throw Error
  // usage, because they belong to the replica's own thread. Throws Error usage if the strategy has ended, or inside a
  // scope.
  class [[nodiscard]] Enter {
   public:
    explicit Enter(const ContextHandle& handle);
    ~Enter();
    Enter(const Enter&) = delete;
    Enter& operator=(const Enter&) = delete;

   private:
    std::unique_ptr<gpu::DeviceGuard> gpu_;
    const void* frame_ = nullptr;
  };

 private:
  friend ContextHandle current_context();

  std::weak_ptr<const Strategy*> alive_;
  Strategy* strategy_ = nullptr;  // Is null outside all scopes.
  ReplicaContext* replica_ = nullptr;
  int part_ = -1;
};
// Returns the context of this thread.
ContextHandle current_context();

namespace detail {

// Sets the thread's context while it lives. With `replica`, the thread is in that replica. Without, it speaks for all
// replicas. With `part`, it changes that replica's part of a variable. If the replica has a GPU, that GPU is the
// thread's current one.
class ScopedContext {
 public:
  // Enters the strategy's context in this thread; `replica` is null in the cross-replica context.
  ScopedContext(Strategy& strategy, ReplicaContext* replica, int part = -1);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  std::unique_ptr<gpu::DeviceGuard> gpu_;
  const void* frame_;
};

// Tells the position from which a call uses an object of the strategy: for all replicas, in one replica, or for one
// replica's part. A foreign replica belongs to another strategy, and uses an object made outside all strategies.
enum class CallerKind { all, replica, part, foreign_replica };
struct CallerContext {
  CallerKind kind = CallerKind::all;
  ReplicaContext* replica = nullptr;  // Is set for kind replica.
  int local = 0;                      // Is set for kinds replica and part.
};
// Returns the caller's kind. Throws Error usage in the scope of another strategy.
CallerContext caller_context(const Strategy& strategy);

// True if this thread only works for the replica in whose context it is.
bool is_helper();
// Throws Error usage in such a thread. `call` names the call in the message.
void refuse_helper(std::string_view call);
// True if this thread speaks for all replicas in the middle of a run of the strategy.
bool is_merged(const Strategy& strategy);
// Removes a strategy that ends from the program's default and from this thread's stack.
void forget(const Strategy& strategy);

// Throws Error usage in a replica, and in another strategy's scope. `call` names the call in the message.
void require_cross_replica(const Strategy& strategy, std::string_view call);

}  // namespace detail
}  // namespace lockstep
