// SPDX-License-Identifier: Apache-2.0
// Runs plans: many at a time, in the order of their calls, driven by those who wait or by a thread of its own. One
// engine for each member and communicator. The world (clock, transport, how to wait) is the one seam: tests put a
// simulated one under the very same code.
#pragma once

#include <string>
#include <utility>

#include "collectives/engine/core.hpp"
#include "collectives/engine/guard.hpp"
#include "collectives/engine/progress_thread.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {

struct EngineOptions {
  Patience patience = {};
  Log log = Log();
  std::string name = "world";  // of the communicator, for people
  bool progress_thread = false;
  bool is_seen = true;     // from outside, by `lockstep stat`
  bool is_watched = true;  // a wait has an end, says who is missing, and asks
  std::uint64_t id = 0;    // that all members have, and no other communicator
  Members members = {};    // where they run, for errors and `lockstep stat`
};

// World (with node::Room* room() and node::PollLimits looks() where members may meet in memory): Duration now(); void
// idle(unsigned turns), or with whether members meet in memory, called after so many turns in a row in which nothing
// moved; Transport& transport(); static constexpr bool runs_progress_hooks: whether a wait moves other engines of its
// thread, too.
template <class World>
class Engine {
 public:
  using Options = EngineOptions;

  Engine(World world, Options options)
      : world_(std::move(world)),
        core_(world_.transport(), options.patience, std::move(options.log), std::move(options.name), room_of(world_),
              looks_of(world_), options.is_seen, options.id, std::move(options.members)),
        is_watched_(options.is_watched) {
    if (options.progress_thread) thread_.emplace([this] { return progress_beside(); }, nap_beside());
    if constexpr (World::runs_progress_hooks) hook_.emplace([this] { progress_beside(); });
  }
  // Calls in flight are given up; the others are told.
  ~Engine() { close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What the destructor does; afterwards nothing else may be called but what asks.
  void close() noexcept {
    if (std::exchange(closed_, true)) return;
    hook_.reset();
    thread_.reset();
    core_.leave();
  }

  // Begins a call; never blocks. Throws what failed before, and what is found to have failed.
  CallTicket start(const Call& call) {
    const EngineScope inside(guard_, {EngineAction::starting, call.plan->spec.collective, call.origin}, core_.name());
    const CallTicket ticket = core_.start(call);
    if (hook_) hook_->busy();
    if (thread_) thread_->wake();
    return ticket;
  }

  // Starts it and waits for it.
  void run(const Call& call) {
    const EngineScope inside(guard_, {EngineAction::waiting, call.plan->spec.collective, call.origin}, core_.name());
    const std::optional<CallTicket> ticket = core_.run(call);
    if (!ticket) [[likely]]
      return;
    if (hook_) hook_->busy();
    if (thread_) thread_->wake();
    wait_inside(*ticket);
  }

  // Whether it is done; then the ticket is spent. Throws what failed, which spends the ticket too.
  bool test(const CallTicket& ticket) {
    const EngineScope inside(guard_, {EngineAction::testing, ticket.collective, ticket.origin}, core_.name());
    if (!core_.is_over(ticket) && !core_.turn(true)) {
      if constexpr (World::runs_progress_hooks) run_progress_hooks(1);
      core_.watch(ticket, world_.now());
    }
    if (!core_.is_over(ticket)) return false;
    take(ticket);
    return true;
  }

  void wait(const CallTicket& ticket) {
    const EngineScope inside(guard_, {EngineAction::waiting, ticket.collective, ticket.origin}, core_.name());
    wait_inside(ticket);
  }

  // For a request that is destroyed before it was waited for, which fails the communicator. Does not throw.
  void drop(const CallTicket& ticket) noexcept {
    try {
      const EngineScope inside(guard_, {EngineAction::dropping, ticket.collective, ticket.origin}, core_.name());
      core_.drop(ticket);
    } catch (const std::exception& error) {
      core_.log().error(error.what());
    }
  }

  // This member cannot make a call that the others make: fails the communicator, so that they do not wait for it. For
  // an error that the caller throws.
  void refuse(const Error& error) noexcept {
    try {
      const EngineScope inside(guard_, {}, core_.name());
      core_.refuse(error);
    } catch (const std::exception& second) {
      core_.log().error(second.what());
    }
  }

  // For who makes a smaller communicator of it, as Core has it.
  std::vector<Transport::SmallMessage> begin_shrinking() {
    const EngineScope inside(guard_, {}, core_.name());
    return core_.begin_shrinking();
  }

  // Moves everything in flight as far as it goes without waiting; whether anything moved. What fails is thrown by the
  // next call.
  bool progress() {
    const EngineScope inside(guard_, {}, core_.name());
    return core_.turn(true);
  }

  // The same, and throws it.
  void progress_or_throw() {
    const EngineScope inside(guard_, {}, core_.name());
    core_.turn(true);
    core_.check_usable();
  }

  // Runs the action while nobody else is inside, such as the progress thread.
  template <class Action>
  void alone(const Action& action) {
    const EngineScope inside(guard_, {}, core_.name());
    action();
  }

  // For a destructor: whether a call is under way inside, perhaps this thread's own. Waits a second for other threads.
  bool is_occupied() const { return guard_.is_occupied(); }

  bool failed() const { return core_.failed(); }
  bool keeps_memory() const { return core_.keeps_memory(); }
  // Why, if it failed; not while a progress thread runs and failed() is false.
  const std::optional<CommunicatorFailure>& failure() const { return core_.failure(); }

  int rank() { return world_.transport().rank(); }
  int size() { return world_.transport().size(); }
  const std::string& name() const { return core_.name(); }
  const Log& log() const { return core_.log(); }
  std::uint32_t exchange_tags() { return world_.transport().exchange_tags(); }
  World& world() { return world_; }

 private:
  void wait_inside(const CallTicket& ticket) {
    for (unsigned turns = 0; !core_.is_over(ticket);) {
      const bool often_enough = turns % turns_between_messages == turns_between_messages - 1;
      if (core_.turn(often_enough)) {
        turns = 0;
        continue;
      }
      if (turns % turns_between_looks == turns_between_looks - 1) {
        if constexpr (World::runs_progress_hooks) run_progress_hooks(1);
        if (is_watched_) core_.watch(ticket, world_.now());
      }
      if constexpr (requires { world_.idle(turns, true); })
        world_.idle(turns++, core_.is_meeting());
      else
        world_.idle(turns++);
    }
    take(ticket);
  }

  void take(const CallTicket& ticket) {
    if (hook_ && core_.is_idle()) hook_->idle();
    core_.take(ticket);
  }

  // Fruitless ones, in a wait. Listening and the clock cost about as much as looking for data does.
  static constexpr unsigned turns_between_messages = 4;
  static constexpr unsigned turns_between_looks = 8;

  static node::Room* room_of(World& world) {
    if constexpr (requires { world.room(); }) return world.room();
    return nullptr;
  }
  static const node::PollLimits& looks_of(World& world) {
    static constexpr node::PollLimits no_looks{};
    if constexpr (requires { world.looks(); })
      return world.looks();
    else
      return no_looks;
  }

  // Of the progress thread. Those of the room are not woken there, so they look again and again.
  ProgressThread::Nap nap_beside() {
    if (!world_.transport().sleeps_beside() || room_of(world_) != nullptr) return {};
    return [this](std::chrono::nanoseconds longest) { world_.transport().sleep(longest.count()); };
  }

  // One turn of the progress thread.
  ProgressState progress_beside() {
    if (!guard_.try_enter_as_progress()) return ProgressState::waiting;  // the user drives
    const bool moved = core_.turn(true);
    const bool idle = core_.is_idle();
    guard_.leave();
    if (moved) return ProgressState::moved;
    return idle ? ProgressState::nothing_to_do : ProgressState::waiting;
  }

  World world_;
  Core core_;
  EngineGuard guard_;
  bool is_watched_;
  bool closed_ = false;
  std::optional<ProgressThread> thread_;
  std::optional<ProgressHook> hook_;
};

}  // namespace lockstep
