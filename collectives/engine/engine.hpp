// SPDX-License-Identifier: Apache-2.0
// Runs plans for one member of one communicator: many at a time, in the order of their calls. A waiting caller drives
// them, or a thread of the engine's own. The platform (clock, transport, way to wait) is the only seam. Tests put a
// simulated platform under the very same code.
//
// CommunicatorMember owns one for each communicator. Calls come from the program's thread, or from the progress thread
// while the program is outside; a guard keeps them apart.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "collectives/engine/core.hpp"
#include "collectives/engine/guard.hpp"
#include "collectives/engine/idle_memory.hpp"
#include "collectives/engine/progress_thread.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {

// Configures an engine. The defaults suit a communicator that `lockstep stat` shows and that detects stalls.
struct EngineOptions {
  WaitLimits wait_limits = {};
  Log log = Log();
  // Names the communicator in errors and in `lockstep stat`.
  std::string name = "world";
  bool progress_thread = false;
  // Is the least size of a started call that the thread continues. A smaller call advances only while its caller waits.
  std::size_t progress_bytes = 0;
  // If true, `lockstep stat` shows this communicator.
  bool is_published = true;
  // Identifies the communicator: the same on all members, and no other communicator has it.
  std::uint64_t id = 0;
  // Says where the members run, for errors and `lockstep stat`.
  Members members = {};
};

// Runs calls in a Platform. `now()` of a Platform returns the time as a Duration. Its `transport()` returns the
// Transport of the messages. Its `idle(turns)` is called after that many turns in a row in which nothing moved. With a
// second parameter, `idle` also learns if a call may wait for a member in the node's memory. If `runs_progress_hooks`
// (static constexpr bool) is true, a wait also advances the other engines of its thread. A Platform may have `room()`
// (node::Room*) and `poll_limits()` (node::PollLimits) if members may meet in the node's memory.
//
// Only one thread at a time may be inside an engine. EngineGuard reports the second one as Error usage.
template <class Platform>
class Engine {
 public:
  using Options = EngineOptions;

  // Starts an engine, and its progress thread if the options ask for one.
  Engine(Platform platform, Options options)
      : platform_(std::move(platform)),
        core_(platform_.transport(), identity_of(platform_, options), options.wait_limits, std::move(options.log),
              room_of(platform_), poll_limits_of(platform_), options.is_published) {
    progress_bytes_ = options.progress_bytes;
    if (options.progress_thread) thread_.emplace([this] { return progress_beside(); }, nap_beside());
    if constexpr (Platform::runs_progress_hooks) hook_.emplace([this] { progress_beside(); });
    if (room_of(platform_) != nullptr) idle_memory_.emplace([this] { return give_back_memory(); });
  }
  // Closes the engine.
  ~Engine() { close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives up calls under way and tells the other members. Afterwards only the accessors below may be called.
  void close() noexcept {
    if (std::exchange(closed_, true)) return;
    idle_memory_.reset();
    hook_.reset();
    thread_.reset();
    core_.leave();
  }

  // Begins a call and never blocks. Returns nothing if the call is already finished. Throws the failure if the
  // communicator has failed before, or fails now. If there is a ticket, the call's buffers must stay until wait() or
  // test() has ended it.
  std::optional<CallTicket> start(const Call& call, CancellationDeferral* cancellation = nullptr) {
    const EngineScope inside(guard_, {EngineAction::starting, call.plan->spec.collective, call.origin}, core_.name());
    note_use(call);
    const std::optional<CallTicket> ticket = core_.start(call, false, cancellation);
    if (ticket) note_start(call);
    return ticket;
  }

  // Starts a call and waits for it. Throws as start() and wait() do. `cancellation`: see Core::start().
  void run(const Call& call, CancellationDeferral* cancellation = nullptr) {
    const EngineScope inside(guard_, {EngineAction::waiting, call.plan->spec.collective, call.origin}, core_.name());
    note_use(call);
    const std::optional<CallTicket> ticket = core_.start(call, true, cancellation);
    if (!ticket) [[likely]]
      return;
    if (cancellation != nullptr) cancellation->begin();
    note_start(call);
    wait_inside(*ticket);
  }

  // Moves the messages that can be moved at once, and marks them; see Core::try_messages(). If `waits` is true, it
  // looks for messages to receive as often as in a call that waits in the node's memory.
  void try_messages(std::span<MessageAttempt> sends, std::span<MessageAttempt> receives, bool waits,
                    const Origin& origin) {
    const EngineScope inside(guard_, {EngineAction::starting, Collective::sendrecv, origin}, core_.name());
    core_.try_messages(sends, receives, waits ? poll_limits_of(platform_) : node::PollLimits{});
  }

  // Returns true if the call is finished, which spends the ticket. Throws the failure if the call failed, which spends
  // the ticket too.
  bool test(const CallTicket& ticket) {
    const EngineScope inside(guard_, {EngineAction::testing, ticket.collective, ticket.origin}, core_.name());
    if (!core_.is_over(ticket) && !core_.progress(true)) {
      if constexpr (Platform::runs_progress_hooks) run_progress_hooks(1);
      core_.watch(ticket, platform_.now());
    }
    if (!core_.is_over(ticket)) return false;
    take(ticket);
    return true;
  }

  // Waits until the call is finished, and spends the ticket. Throws the failure if the call failed. If it waits longer
  // than its limit, that is Error stall, which names the missing ranks.
  void wait(const CallTicket& ticket) {
    const EngineScope inside(guard_, {EngineAction::waiting, ticket.collective, ticket.origin}, core_.name());
    wait_inside(ticket);
  }

  // Spends the ticket of a request that is destroyed before it was waited for. This fails the communicator. It does not
  // throw.
  void drop(const CallTicket& ticket) noexcept {
    run_or_log({EngineAction::dropping, ticket.collective, ticket.origin}, [&] { core_.drop(ticket); });
  }

  // Does the same for a call without a ticket, which `call` names for people.
  void drop(std::string_view call, const Origin& origin) noexcept {
    run_or_log({.action = EngineAction::dropping, .origin = origin}, [&] { core_.drop(call, origin); });
  }

  // Fails the communicator because this member cannot make a call that the others make. So the others do not wait for
  // it. `error` is the error that the caller throws.
  void refuse(const Error& error) noexcept {
    run_or_log({}, [&] { core_.failure().refuse(error); });
  }

  // Prepares for a smaller communicator; see Core::begin_shrinking().
  std::vector<Transport::ReceivedControl> begin_shrinking() {
    const EngineScope inside(guard_, {}, core_.name());
    return core_.begin_shrinking();
  }

  // Advances all calls as far as they go without waiting. Returns true if anything moved. A failure is thrown by the
  // next call.
  bool progress() {
    const EngineScope inside(guard_, {}, core_.name());
    return core_.progress(true);
  }

  // Advances all calls as progress() does, and throws the failure if there is one.
  void progress_or_throw() {
    const EngineScope inside(guard_, {}, core_.name());
    core_.progress(true);
    core_.failure().check();
  }

  // Runs the action while no other thread is inside, such as the progress thread.
  template <class Action>
  void alone(const Action& action) {
    const EngineScope inside(guard_, {}, core_.name());
    action();
  }

  // Returns true if a call is inside, perhaps one of this thread itself. Destructors ask this. Waits up to a second for
  // another thread to leave.
  bool is_occupied() const { return guard_.is_occupied(); }

  // Returns true if the communicator has failed.
  bool failed() const { return core_.failure().has_failed(); }
  // Returns true if messages or copies may still use this member's memory; see FailureHandler::keeps_memory().
  bool keeps_memory() const { return core_.failure().keeps_memory(); }
  // Returns the reason of the failure. Must not be called while a progress thread runs and failed() is false.
  const std::optional<ErrorReport>& failure() const { return core_.failure().reason(); }

  int rank() { return platform_.transport().rank(); }
  int size() { return platform_.transport().size(); }
  const std::string& name() const { return core_.name(); }
  const Log& log() const { return core_.failure().log(); }
  // Returns the limit for tags of messages; see Transport::message_tags().
  std::uint32_t message_tags() { return platform_.transport().message_tags(); }
  Platform& platform() { return platform_; }

 private:
  // Runs the action inside the engine, and logs an error instead of throwing it.
  template <class Action>
  void run_or_log(const EngineActivity& activity, const Action& action) noexcept {
    try {
      const EngineScope inside(guard_, activity, core_.name());
      action();
    } catch (const std::exception& error) {
      core_.failure().log().error(error.what());
    }
  }
  // Lets others advance the call meanwhile: this thread's waits for other engines, or the progress thread.
  void note_start(const Call& call) {
    if (hook_) hook_->busy();
    if (thread_ && is_large(call)) thread_->wake();
  }
  void wait_inside(const CallTicket& ticket) {
    for (unsigned turns = 0; !core_.is_over(ticket);) {
      const bool often_enough = turns % turns_between_messages == turns_between_messages - 1;
      if (core_.progress(often_enough)) {
        turns = 0;
        continue;
      }
      if (turns % turns_between_looks == turns_between_looks - 1) {
        if constexpr (Platform::runs_progress_hooks) run_progress_hooks(1);
        core_.watch(ticket, platform_.now());
      }
      if constexpr (requires { platform_.idle(turns, true); })
        platform_.idle(turns++, core_.operations().may_wait_in_node());
      else
        platform_.idle(turns++);
    }
    take(ticket);
  }

  void take(const CallTicket& ticket) {
    if (hook_ && core_.operations().is_idle()) hook_->idle();
    core_.take(ticket);
  }

  static std::size_t bytes_of(const Call& call) { return call.plan->spec.count * call.plan->spec.element_bytes; }
  bool is_large(const Call& call) const { return bytes_of(call) >= progress_bytes_; }
  // Notes that the call may use pages or slots. Smaller calls have their data in lines.
  void note_use(const Call& call) {
    const Plan& plan = *call.plan;
    const std::size_t bytes = (plan.input_count + plan.output_count) * plan.spec.element_bytes;
    if (bytes > node::Line::room && idle_memory_) [[unlikely]]
      idle_memory_->note_use(bytes >= large_use);
  }

  // Is the size in bytes of input and output from which each call is noted in IdleMemory; a guess.
  static constexpr std::size_t large_use = std::size_t{32} << 10U;
  // Returns the memory of slots and pages for IdleMemory, unless a thread is inside. What a GPU may use stays.
  bool give_back_memory() {
    if (!guard_.try_enter_as_progress()) return false;
    const bool has_returned = core_.give_back_memory();
    guard_.leave();
    return has_returned;
  }

  // Count turns in which nothing moved, in a wait. Control messages and the clock cost about as much as looking for
  // data, so a wait looks at them less often. Both numbers are guesses.
  static constexpr unsigned turns_between_messages = 4;
  static constexpr unsigned turns_between_looks = 8;

  static CommunicatorIdentity identity_of(Platform& platform, Options& options) {
    Transport& transport = platform.transport();
    return {std::move(options.name), transport.rank(), transport.size(), options.id, std::move(options.members)};
  }
  static node::Room* room_of(Platform& platform) {
    if constexpr (requires { platform.room(); }) return platform.room();
    return nullptr;
  }
  static const node::PollLimits& poll_limits_of(Platform& platform) {
    static constexpr node::PollLimits no_limits{};
    if constexpr (requires { platform.poll_limits(); })
      return platform.poll_limits();
    else
      return no_limits;
  }

  // Returns the function by which the progress thread sleeps until a message comes. Returns nothing if the transport
  // cannot do that, so that the thread polls. It also polls if there is a room, since members in the room do not wake
  // it.
  ProgressThread::Nap nap_beside() {
    if (!platform_.transport().can_sleep_beside() || room_of(platform_) != nullptr) return {};
    return [this](std::chrono::nanoseconds longest) { platform_.transport().sleep(longest.count()); };
  }

  // Takes one turn of the progress thread.
  ProgressState progress_beside() {
    if (!guard_.try_enter_as_progress()) return ProgressState::waiting;  // the user's thread drives the calls
    const bool moved = core_.progress(true);
    const bool idle = core_.operations().is_idle();
    guard_.leave();
    if (moved) return ProgressState::moved;
    return idle ? ProgressState::nothing_to_do : ProgressState::waiting;
  }

  Platform platform_;
  Core core_;
  EngineGuard guard_;
  bool closed_ = false;
  std::size_t progress_bytes_ = 0;
  std::optional<ProgressThread> thread_;
  std::optional<ProgressHook> hook_;
  std::optional<IdleMemory> idle_memory_;
};

}  // namespace lockstep
