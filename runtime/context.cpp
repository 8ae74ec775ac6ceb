// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.hpp"

#include <algorithm>
#include <atomic>
#include <list>

#include "collectives/gpu/layer.hpp"
#include "runtime/default_strategy.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct Frame {
  Strategy* strategy = nullptr;
  ReplicaContext* replica = nullptr;
  bool merged = false;
  int part = -1;  // of this replica alone
};

// A list: frames keep their addresses, and may be taken out of the middle.
thread_local std::list<Frame> frames;

std::atomic<Strategy*> program_wide = nullptr;

Strategy& outermost() {
  Strategy* const set = program_wide.load(std::memory_order_acquire);
  return set != nullptr ? *set : default_strategy();
}

void refuse_mixing(const Strategy& wanted, const Strategy& current) {
  throw Error(Code::usage, text("mixing different strategies: ", wanted.describe(), " is not ", current.describe()),
              "leave the scope of the one before you use the other");
}

// The default strategy's scope changes nothing: whoever is in it is still the only replica.
bool is_default_scope(const Frame& frame) {
  return frame.strategy == &default_strategy() && frame.replica == nullptr && !frame.merged && frame.part < 0;
}

// Takes it out, wherever it is. Whether it was the last one.
bool take_out(const void* frame) {
  const bool is_last = !frames.empty() && &frames.back() == frame;
  frames.remove_if([&](const Frame& each) { return &each == frame; });
  return is_last;
}

}  // namespace

Scope::Scope(Strategy& strategy) : log_(strategy.log()), frame_(nullptr) {
  if (!frames.empty() && frames.back().strategy != &strategy) refuse_mixing(strategy, *frames.back().strategy);
  // Again in the same one: whoever is in a replica stays there.
  const Frame above = frames.empty() ? Frame{&strategy} : frames.back();
  frames.push_back(above);
  frame_ = &frames.back();
}

Scope::~Scope() {
  if (!take_out(frame_))
    log_.error(text(id(Code::usage),
                    " a strategy's scope ended before one that was entered after it, after its strategy, "
                    "or in another thread -> let scopes be local variables"));
}

Strategy& get_strategy() { return frames.empty() ? outermost() : *frames.back().strategy; }

bool has_strategy() { return &get_strategy() != &default_strategy(); }

void set_strategy(Strategy* strategy) {
  if (!frames.empty())
    throw Error(Code::usage, "set_strategy must not be called inside a strategy's scope", "call it before, or after");
  program_wide.store(strategy == &default_strategy() ? nullptr : strategy, std::memory_order_release);
}

ReplicaContext* replica_context() {
  if (!frames.empty() && is_default_scope(frames.back())) return &default_strategy().replica(0);
  if (!frames.empty()) return frames.back().replica;
  return program_wide.load(std::memory_order_acquire) != nullptr ? nullptr : &default_strategy().replica(0);
}

bool in_cross_replica_context() { return replica_context() == nullptr; }

namespace detail {

Enter::Enter(Strategy& strategy, ReplicaContext* replica, int part) : frame_(nullptr) {
  const int local = replica != nullptr ? replica->local_id() : part;
  const int gpu = local < 0 ? gpu::Where::host : strategy.gpu_of(local);
  if (gpu != gpu::Where::host) gpu_ = std::make_unique<gpu::Using>(gpu);
  const bool merged = part < 0 ? replica == nullptr : is_merged(strategy);
  frames.push_back({&strategy, replica, merged, part});
  frame_ = &frames.back();
}
Enter::~Enter() { take_out(frame_); }

Speaker speaker(const Strategy& strategy) {
  const Strategy& current = get_strategy();
  const bool is_default = &strategy == &default_strategy();
  if (&current != &strategy) {
    const bool is_in_none = frames.empty() && !has_strategy();
    if (!is_default && !is_in_none) refuse_mixing(strategy, current);
    const bool is_stranger = is_default && replica_context() != nullptr;
    return {is_stranger ? Speaker::Kind::stranger : Speaker::Kind::all};
  }
  if (frames.empty()) return {};
  const Frame& frame = frames.back();
  if (frame.part >= 0) return {Speaker::Kind::part, nullptr, frame.part};
  if (frame.replica == nullptr) return {};
  return {Speaker::Kind::replica, frame.replica, frame.replica->local_id()};
}

bool is_merged(const Strategy& strategy) {
  return !frames.empty() && frames.back().strategy == &strategy && frames.back().merged;
}

void forget(const Strategy& strategy) {
  Strategy* expected = program_wide.load(std::memory_order_acquire);
  if (expected == &strategy) program_wide.compare_exchange_strong(expected, nullptr);
  frames.remove_if([&](const Frame& each) { return each.strategy == &strategy; });
}

void require_cross_replica(const Strategy& strategy, std::string_view call) {
  if (frames.empty() || &strategy == &default_strategy()) return;
  if (frames.back().strategy != &strategy) refuse_mixing(strategy, *frames.back().strategy);
  if (frames.back().replica != nullptr)
    throw Error(Code::usage,
                text(call, " requires being in cross-replica context, and was called in replica ",
                     frames.back().replica->replica_id_in_sync_group()),
                "call it outside of run(), or inside the context's merge_call()");
}

}  // namespace detail
}  // namespace lockstep
