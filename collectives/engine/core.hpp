// SPDX-License-Identifier: Apache-2.0
// Implements all of an engine except waiting: calls under way, agreement, control messages, failure. It has no clock
// and never blocks; the caller passes the time. So the same code runs with the real clock, and with a fake clock in
// tests. Two threads must not use a Core at once. Engine makes sure of that.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/engine/agreement.hpp"
#include "collectives/engine/call_history.hpp"
#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/control_dispatcher.hpp"
#include "collectives/engine/departed_members.hpp"
#include "collectives/engine/failure_handler.hpp"
#include "collectives/engine/operation_table.hpp"
#include "collectives/engine/plan_facts.hpp"
#include "collectives/engine/runner.hpp"
#include "collectives/engine/stall_detector.hpp"
#include "collectives/engine/status_publisher.hpp"
#include "topology/base/cancellation_deferral.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Describes a point-to-point message that may be moved at once. It does not own the data.
struct MessageAttempt {
  int peer = 0;
  std::uint32_t call_tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_done = false;
};

// Runs the calls of one member in one communicator. After the first failure, every further call fails too.
class Core {
 public:
  // Creates the core for the transport's rank. The transport and the room must outlive it, and so must `poll_limits`.
  //
  // `room` is the shared memory for calls that are planned for the node; null means that there is none. `poll_limits`
  // says how often such calls poll; its values may change. If `is_published` is true, `lockstep stat` shows this
  // communicator.
  Core(Transport& transport, CommunicatorIdentity identity, WaitLimits wait_limits, Log log, node::Room* room,
       const node::PollLimits& poll_limits, bool is_published);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Begins a call and returns its ticket. Returns nothing if the call is already finished. Throws the failure if the
  // communicator has failed, now or before. A repeated call in the node's memory takes a few hundred instructions if no
  // other call is under way. It spins for the others; if `waits` is true, it also lets other threads have its core.
  // `cancellation`, if it is not null, begins before the call does anything but look at memory
  // or read another process's.
  std::optional<CallTicket> start(const Call& call, bool waits, CancellationDeferral* cancellation = nullptr);
  // Moves the messages that can be moved at once, without operations, and marks them. Waits for those to receive by at
  // most these looks. The caller starts the others, in their order.
  void try_messages(std::span<MessageAttempt> sends, std::span<MessageAttempt> receives, node::PollLimits poll_limits);
  // Advances all calls as far as they go without waiting. Receives control messages if `receives_control` is true, or
  // if a call waits for one. Returns false if nothing moved.
  bool progress(bool receives_control);
  // Returns true if the call is finished, or if the communicator has failed. Throws Error usage for a spent ticket.
  bool is_over(const CallTicket& ticket) const;
  // Spends the ticket of a call that is over. Throws the failure if the call failed.
  void take(const CallTicket& ticket);
  // Reacts to a wait in which nothing moved. Depending on the time, it asks the missing members, warns, or fails the
  // communicator.
  void watch(const CallTicket& ticket, Duration now);
  // Spends a ticket that nobody waited for. If the communicator has not failed yet, this fails it.
  void drop(const CallTicket& ticket) noexcept;
  // Does the same for a call whose ticket is spent, or that had none. `call` names it for people.
  void drop(std::string_view call, const Origin& origin) noexcept;
  // Tells the other members that this one leaves. Calls under way fail first.
  void leave() noexcept;
  // Fails the communicator, if it has not failed, so that a smaller one can replace it. Returns the SurviveMessages
  // received so far. From then on the caller receives the transport's control messages.
  std::vector<Transport::ReceivedControl> begin_shrinking();

  // Returns the memory of slots and pages in the node that no member uses. Returns false if that must wait.
  bool give_back_memory() { return !failure_.has_failed() && operations_.is_idle() && runner_.give_back_memory(); }

  // Returns the calls under way.
  const OperationTable& operations() const { return operations_; }
  // Returns the part that fails this communicator. Any thread may call its has_failed().
  FailureHandler& failure() { return failure_; }
  const FailureHandler& failure() const { return failure_; }
  const std::string& name() const { return identity_.name; }

 private:
  PlanFacts* repeated(const Call& call);
  Operation& repeat(PlanFacts& known, const Call& call, node::PollLimits poll_limits,
                    CancellationDeferral* cancellation);
  CallTicket start_anew(const Call& call);
  void reserve_operation(PlanFacts& entry, const Call& call);
  CallTicket keep(Operation& operation);
  Operation& operation_of(const CallTicket& ticket) const;
  void begin(Operation& operation, PlanFacts& entry);
  void number(Operation& operation, const PlanFacts& entry);
  void agree(Operation& operation);
  bool send_agreements(Operation& operation);
  bool needs_control();
  bool try_receives(std::span<MessageAttempt> receives);
  bool move(Operation& operation);
  void finish(const Operation& operation);
  void fail_dropped(std::string_view call, const Origin& origin);

  // Runs the action. An exception fails the communicator and is kept for the user.
  template <class Action>
  void guarded(const Action& action) noexcept {
    try {
      action();
    } catch (...) {
      const CancellationDeferral cancellation;  // since a failure is logged
      failure_.fail(cause_in_flight(advancing_, identity_.members.number_of(identity_.rank)), true);
      advancing_ = nullptr;
    }
  }

  Transport& transport_;
  CommunicatorIdentity identity_;
  Log log_;
  Runner runner_;
  OperationTable operations_;
  Agreement agreement_;
  CallHistory history_;
  PlanFactsTable plan_facts_;
  DepartedMembers departed_;
  StatusPublisher publisher_;
  StallDetector stalls_;
  FailureHandler failure_;
  ControlDispatcher dispatcher_;
  // Counts messages. Some of them receive control messages, because a look costs as much as a small message.
  unsigned messages_since_control_ = 0;
  // Points to the operation being advanced, so that an error can name it.
  Operation* advancing_ = nullptr;
};

}  // namespace lockstep
