// SPDX-License-Identifier: Apache-2.0
// Keeps each thread's stack of contexts.
#include "runtime/context.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "collectives/gpu/device_backend.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/strategy_state.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct ContextFrame {
  Strategy* strategy = nullptr;
  ReplicaContext* replica = nullptr;
  bool merged = false;
  int part = -1;                  // Limits the frame to this replica's part.
  bool helps = false;             // True if the frame is another thread's, entered by a handle.
  ContextFrame* outer = nullptr;  // Is owned by this frame.
};

// Points to the innermost frame. It is a plain pointer, because exit() destroys a thread's objects before strategies
// with static storage, which still read it.
constinit thread_local ContextFrame* innermost = nullptr;

const ContextFrame* push(ContextFrame frame) {
  frame.outer = innermost;
  return innermost = new ContextFrame(frame);
}

template <class Predicate>
void remove_if(const Predicate& is_unwanted) {
  for (ContextFrame** at = &innermost; *at != nullptr;) {
    if (is_unwanted(**at))
      delete std::exchange(*at, (*at)->outer);
    else
      at = &(*at)->outer;
  }
}

std::atomic<Strategy*> program_wide = nullptr;

Strategy& outermost() {
  Strategy* const set = program_wide.load(std::memory_order_acquire);
  return set != nullptr ? *set : default_strategy();
}

void refuse_mixing(const Strategy& wanted, const Strategy& current) {
  throw Error(Code::usage, text("mixing different strategies: ", wanted.describe(), " is not ", current.describe()),
              "leave the scope of the one before you use the other");
}

// True for a scope of the default strategy, which changes nothing: the thread is still its only replica.
bool is_default_scope(const ContextFrame& frame) {
  return frame.strategy == &default_strategy() && frame.replica == nullptr && !frame.merged && frame.part < 0;
}

// Removes a frame from any place in the stack. Returns true if it was the innermost.
bool take_out(const void* frame) {
  const bool is_last = innermost != nullptr && innermost == frame;
  remove_if([&](const ContextFrame& each) { return &each == frame; });
  return is_last;
}

// Makes the GPU of a local replica the thread's current one. Returns null for the host, or without a replica.
std::unique_ptr<gpu::DeviceGuard> guard_for(const Strategy& strategy, int local) {
  const auto& state = detail::StrategyState::of(strategy);
  const int gpu =
      local < 0 ? gpu::MemoryLocation::host : state.devices.gpu_of(state.replicas.seats().main_seat_of(local));
  return gpu == gpu::MemoryLocation::host ? nullptr : std::make_unique<gpu::DeviceGuard>(gpu);
}

}  // namespace

Scope::Scope(Strategy& strategy) : log_(strategy.log()), frame_(nullptr) {
  if (innermost != nullptr && innermost->strategy != &strategy) refuse_mixing(strategy, *innermost->strategy);
  // A nested scope of the same strategy keeps the thread's replica.
  frame_ = push(innermost == nullptr ? ContextFrame{&strategy} : *innermost);
}

Scope::~Scope() {
  if (!take_out(frame_))
    log_.error(text(id(Code::usage),
                    " a strategy's scope ended before one that was entered after it, after its strategy, "
                    "or in another thread -> let scopes be local variables"));
}

Strategy& get_strategy() { return innermost == nullptr ? outermost() : *innermost->strategy; }

bool has_strategy() { return &get_strategy() != &default_strategy(); }

void set_strategy(Strategy* strategy) {
  if (innermost != nullptr)
    throw Error(Code::usage, "set_strategy must not be called inside a strategy's scope", "call it before, or after");
  program_wide.store(strategy == &default_strategy() ? nullptr : strategy, std::memory_order_release);
}

ReplicaContext* replica_context() {
  if (innermost != nullptr && is_default_scope(*innermost)) return &default_strategy().replica(0);
  if (innermost != nullptr) return innermost->replica;
  return program_wide.load(std::memory_order_acquire) != nullptr ? nullptr : &default_strategy().replica(0);
}

ContextHandle current_context() {
  ContextHandle here;
  if (innermost == nullptr || innermost->strategy == &default_strategy()) return here;
  here.alive_ = detail::StrategyState::of(*innermost->strategy).here;
  here.strategy_ = innermost->strategy;
  here.replica_ = innermost->replica;
  here.part_ = innermost->part;
  return here;
}

ContextHandle::Enter::Enter(const ContextHandle& handle) {
  if (handle.strategy_ == nullptr) return;
  if (handle.alive_.expired())
    throw Error(Code::usage, "a thread enters the context of a strategy that has ended",
                "join the thread before the strategy ends");
  if (innermost != nullptr)
    throw Error(Code::usage,
                text("a thread enters a context inside ", innermost->strategy->describe(), ", where it already is"),
                "enter it in a thread that is outside of all scopes");
  const int local = handle.replica_ != nullptr ? handle.replica_->local_id() : handle.part_;
  gpu_ = guard_for(*handle.strategy_, local);
  frame_ = push({.strategy = handle.strategy_, .replica = handle.replica_, .part = handle.part_, .helps = true});
}
ContextHandle::Enter::~Enter() { take_out(frame_); }

std::optional<int> update_replica() {
  if (innermost == nullptr || innermost->part < 0) return std::nullopt;
  return innermost->strategy->replica(innermost->part).replica_id_in_sync_group();
}

bool in_cross_replica_context() { return replica_context() == nullptr; }

namespace detail {

ScopedContext::ScopedContext(Strategy& strategy, ReplicaContext* replica, int part) : frame_(nullptr) {
  gpu_ = guard_for(strategy, replica != nullptr ? replica->local_id() : part);
  const bool merged = part < 0 ? replica == nullptr : is_merged(strategy);
  frame_ = push({&strategy, replica, merged, part});
}
ScopedContext::~ScopedContext() { take_out(frame_); }

CallerContext caller_context(const Strategy& strategy) {
  const Strategy& current = get_strategy();
  const bool is_default = &strategy == &default_strategy();
  if (&current != &strategy) {
    const bool is_in_none = innermost == nullptr && !has_strategy();
    if (!is_default && !is_in_none) refuse_mixing(strategy, current);
    const bool is_foreign = is_default && replica_context() != nullptr;
    return {is_foreign ? CallerKind::foreign_replica : CallerKind::all};
  }
  if (innermost == nullptr) return {};
  const ContextFrame& frame = *innermost;
  if (frame.part >= 0) return {CallerKind::part, nullptr, frame.part};
  if (frame.replica == nullptr) return {};
  return {CallerKind::replica, frame.replica, frame.replica->local_id()};
}

bool is_helper() { return innermost != nullptr && innermost->helps; }

void refuse_helper(std::string_view call) {
  if (is_helper())
    throw Error(Code::usage, text(call, " in a thread that entered a context by a handle"),
                "leave it to the thread that gave the handle");
}

bool is_merged(const Strategy& strategy) {
  return innermost != nullptr && innermost->strategy == &strategy && innermost->merged;
}

void forget(const Strategy& strategy) {
  Strategy* expected = program_wide.load(std::memory_order_acquire);
  if (expected == &strategy) program_wide.compare_exchange_strong(expected, nullptr);
  remove_if([&](const ContextFrame& each) { return each.strategy == &strategy; });
}

void require_cross_replica(const Strategy& strategy, std::string_view call) {
  if (innermost == nullptr || &strategy == &default_strategy()) return;
  if (innermost->strategy != &strategy) refuse_mixing(strategy, *innermost->strategy);
  if (innermost->replica != nullptr)
    throw Error(Code::usage,
                text(call, " requires being in cross-replica context, and was called in replica ",
                     innermost->replica->replica_id_in_sync_group()),
                text(call == "gather"   ? "use the context's all_gather(), or "
                     : call == "reduce" ? "use the context's all_reduce(), or "
                                        : "",
                     "call it outside of run(), or inside the context's merge_call()"));
  refuse_helper(call);
}

}  // namespace detail
}  // namespace lockstep
