// SPDX-License-Identifier: Apache-2.0
// Implements all of an engine except waiting: calls under way, agreement, answers, failure. It has no clock and never
// blocks; the caller passes the time. So the same code runs with the real clock, and with a fake clock in tests. Two
// threads must not use a Core at once. Engine makes sure of that.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <optional>

#include "collectives/engine/agreement.hpp"
#include "collectives/engine/call_history.hpp"
#include "collectives/engine/runner.hpp"
#include "collectives/engine/stall.hpp"
#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "collectives/engine/timeline.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"
#include "topology/members.hpp"

namespace lockstep {

// Identifies a call under way to the caller that started it. The caller waits for it, tests it until it is finished, or
// drops it, exactly once.
struct CallTicket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  Collective collective = Collective::barrier;
  Origin origin = {};
};

// Says why a communicator cannot be used any more.
struct CommunicatorFailure {
  Code code = Code::internal;
  std::string text;
};

// Runs the calls of one member in one communicator. After the first failure, every further call fails too.
class Core {
 public:
  // Creates the core for the transport's rank. The transport and the room must outlive it, and so must `looks`.
  //
  // `room` is the shared memory for calls that are planned for the node; null means that there is none. `looks` says
  // how often such calls poll; its values may change. If `is_seen` is true, `lockstep stat` shows this communicator.
  // `id` is the same on all members, and no other communicator has it. `members` names the members in errors.
  Core(Transport& transport, Patience patience, Log log, std::string name, node::Room* room = nullptr,
       const node::PollLimits& looks = no_looks, bool is_seen = true, std::uint64_t id = 0, Members members = {});
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Begins a call and returns its ticket. Throws the failure if the communicator has failed, now or before.
  CallTicket start(const Call& call);
  // Works like start(), for a caller that waits at once. Returns nothing if the call is already finished. A repeated
  // call in the node's memory takes a few hundred instructions if no other call is under way.
  std::optional<CallTicket> run(const Call& call);
  // Advances all calls as far as they go without waiting. Receives control messages if `listening` is true, or if a
  // call waits for one. Returns false if nothing moved.
  bool turn(bool listening);
  // Returns true if the call is finished, or if the communicator has failed. Throws Error usage for a spent ticket.
  bool is_over(const CallTicket& ticket) const;
  // Throws the failure if the communicator has failed. The first throw is the error itself; later ones are Error
  // poisoned.
  void check_usable();
  // Spends the ticket of a call that is over. Throws the failure if the call failed.
  void take(const CallTicket& ticket);
  // Reacts to a wait in which nothing moved. Depending on the time, it asks the missing members, warns, or fails the
  // communicator.
  void watch(const CallTicket& ticket, Duration now);
  // Spends a ticket that nobody waited for. If the communicator has not failed yet, this fails it.
  void drop(const CallTicket& ticket) noexcept;
  // Fails the communicator because this member cannot make a call. The other members are told, since they would wait
  // for that call in vain.
  void refuse(const Error& error) noexcept;
  // Tells the other members that this one leaves. Calls under way fail first.
  void leave() noexcept;
  // Fails the communicator, if it has not failed, so that a smaller one can replace it. Returns the SurviveMessages
  // received so far. From then on the caller receives the transport's control messages.
  std::vector<Transport::SmallMessage> begin_shrinking();

  // Returns true if no call is under way.
  bool is_idle() const { return active_.empty(); }
  // Returns true if a call under way may wait for a member in the room.
  bool is_meeting() const {
    return std::ranges::any_of(
        active_, [](const Operation* each) { return each->plan().in_node || each->part_in_room != nullptr; });
  }
  // Returns true if the communicator has failed. Any thread may call this.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  const std::optional<CommunicatorFailure>& failure() const { return failure_; }
  // Returns true if messages or copies may still use this member's memory. That memory is kept until the process exits.
  bool keeps_memory() const { return keeps_memory_; }
  const std::string& name() const { return name_; }
  const Log& log() const { return log_; }

 private:
  // Holds the values that all calls of one plan share.
  struct PlanEntry {
    std::shared_ptr<const Plan> plan;
    Signature signature;
    std::uint64_t kind = 0;
    std::size_t most_messages = 0;
    // Holds agreement_.forgotten() + 1 as of the members' agreement on this plan; 0 means that they have not agreed.
    std::uint64_t agreed = 0;
    // Points to the operation that repeats this plan. It stays here if another plan takes this entry.
    Operation* home = nullptr;
  };

  PlanEntry& prepare(const std::shared_ptr<const Plan>& plan);
  PlanEntry& place_of(const std::shared_ptr<const Plan>& plan);
  PlanEntry* repeated(const Call& call);
  void make_home(PlanEntry& prepared, const Call& call);
  CallTicket keep(Operation& operation);
  Operation& take_slot();
  Operation& operation_of(const CallTicket& ticket) const;
  void release(Operation& operation);
  void number(Operation& operation, PlanEntry& prepared);
  void set_call_tag(Operation& operation, const PlanEntry& prepared);
  void agree(Operation& operation, const CallRecord& recorded);
  bool send_off(Operation& operation);
  void check_present(const Operation& operation);
  bool move(Operation& operation);
  void sweep();

  bool listen();
  void hear(int peer, const AgreeMessage& message);
  void hear(int peer, const AskMessage& message);
  void hear(int peer, const AnswerMessage& message);
  void hear(int peer, const FailMessage& message);
  void hear(int peer, const LeaveMessage& message);
  void hear(int peer, const SurviveMessage& message);
  void compare(int peer, const CallDescription& theirs);
  CallDescription description_of(const CallRecord& recorded) const;
  void tell(int peer, const ControlMessage& message);
  void tell_all(const ControlMessage& message);

  Operation& what_it_waits_for(Operation& operation);
  void look(Operation& operation, Duration limit, Duration now);
  void refuse_if_in_another(const Operation& operation) const;
  void ask(Operation& operation, const IndexSet& peers, bool anew);
  void ask_as_requested();
  IndexSet direct_peers(const Operation& operation) const;
  IndexSet all_peers(const Operation& operation) const;
  std::string standing(const Operation& operation, Duration quiet) const;
  Error stalled(const Operation& operation, Duration quiet, bool by_program) const;
  void write_what_is_waited_for(const Operation& operation, const IndexSet& peers);
  void write_status_file() noexcept;
  void leave_track() noexcept;
  void finish(const Operation& operation);
  std::uint64_t all_finished() const;
  void wait_anew(Operation& operation);

  // Runs the action. An exception fails the communicator and is kept for the user.
  template <class Action>
  void guarded(const Action& action) noexcept {
    try {
      action();
    } catch (...) {
      fail_now(moving_);
      moving_ = nullptr;
    }
  }
  void fail(std::exception_ptr error, CommunicatorFailure failure, bool tell_others) noexcept;
  void fail_with(const Error& error) noexcept;
  void fail_now(const Operation* during) noexcept;

  Transport& transport_;
  Patience patience_;
  Log log_;
  std::string name_;
  int rank_;
  int size_;
  std::uint64_t id_;
  Runner runner_;
  Agreement agreement_;
  CallHistory call_history_;
  Members members_;
  // Points to this communicator's entry in the status file; null if it has none.
  status::CommunicatorStatus* status_ = nullptr;
  // Writes notes on the other members, which are in the same file.
  status::MemberNotes notes_;
  // Records the time of the last question round that a reader of the status file requested; 0 means none.
  std::int64_t requested_ns_ = 0;
  // Tells for each rank if its answer to such a question is missing.
  std::vector<bool> requested_;
  std::unique_ptr<timeline::Track> track_;

  std::vector<std::unique_ptr<Operation>> slots_;
  // Lists the free slots as a stack: the slot released last is used first.
  std::vector<std::uint32_t> free_slots_;
  // Lists the calls under way, in their order.
  std::vector<Operation*> active_;
  std::array<PlanEntry, 64> plan_entries_ = {};
  PlanEntry* last_repeated_ = plan_entries_.data();
  // Counts the collective calls of this member.
  std::uint64_t last_started_ = 0;
  // Combines all collective calls so far.
  std::uint64_t call_hash_ = 0;
  std::uint64_t last_exchange_ = 0;
  std::uint64_t last_finished_ = 0;

  // Holds for each rank its last call, if that member has left.
  std::vector<std::optional<std::uint64_t>> left_;
  bool anybody_left_ = false;

  std::atomic<bool> failed_{false};
  std::optional<CommunicatorFailure> failure_;
  std::exception_ptr error_;
  bool told_user_ = false;
  bool keeps_memory_ = false;
  // Keeps SurviveMessages that come before begin_shrinking().
  std::vector<Transport::SmallMessage> of_survivors_;
  // Points to the operation being advanced, so that an error can name it.
  Operation* moving_ = nullptr;

  static constexpr node::PollLimits no_looks{};
};

}  // namespace lockstep
