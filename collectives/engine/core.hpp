// SPDX-License-Identifier: Apache-2.0
// All that an engine does except waiting: calls in flight, agreement, answers, failure. It has no clock and never
// blocks: time is told to it. So the same code runs against the real clock, and against a fake one in tests.
// Not for use by two threads at once; Engine guards it.
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

// A call in flight, for who started it. To be waited for, or tested until it is true, or dropped; once.
struct CallTicket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  Collective collective = Collective::barrier;
  Origin origin = {};
};

// Why a communicator cannot be used any more.
struct CommunicatorFailure {
  Code code = Code::internal;
  std::string text;
};

class Core {
 public:
  // Calls that are planned for the node are done in the room. `looks` says how often they look for what is missing; it
  // may change. `is_seen`: others may read what is called here. `id` is the same on all members, and no other
  // communicator has it. `members` names them in errors.
  Core(Transport& transport, Patience patience, Log log, std::string name, node::Room* room = nullptr,
       const node::PollLimits& looks = no_looks, bool is_seen = true, std::uint64_t id = 0, Members members = {});
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  CallTicket start(const Call& call);
  // As start(), for a call that is waited for at once. Nothing: it is done already. A call in the node's memory that is
  // made again, while no other is under way, is done in a few hundred instructions.
  std::optional<CallTicket> run(const Call& call);
  // Moves what can be moved, and listens to the others if told to or if something waits for it; false when there was
  // nothing to do.
  bool turn(bool listening);
  // Whether there is nothing left to wait for: it is finished, or all has failed.
  bool is_over(const CallTicket& ticket) const;
  // Throws what failed.
  void check_usable();
  // Gives the ticket back; throws what failed.
  void take(const CallTicket& ticket);
  // Nothing moved: asks, warns, and fails as time goes by.
  void watch(const CallTicket& ticket, Duration now);
  void drop(const CallTicket& ticket) noexcept;
  // What the caller was refused for before a call began: the others would wait for it in vain, so they are told.
  void refuse(const Error& error) noexcept;
  void leave() noexcept;
  // Fails the communicator if it has not failed, so that a smaller one can be made of it. Returns the SurviveMessages
  // that have come so far. From then on the caller takes the transport's control messages.
  std::vector<Transport::SmallMessage> begin_shrinking();

  bool is_idle() const { return active_.empty(); }
  // True if a call under way may wait for a member in the room.
  bool is_meeting() const {
    return std::ranges::any_of(
        active_, [](const Operation* each) { return each->plan().in_node || each->part_in_room != nullptr; });
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  const std::optional<CommunicatorFailure>& failure() const { return failure_; }
  // Whether the transport could not call back all that was posted: its memory stays until the program ends.
  bool keeps_memory() const { return keeps_memory_; }
  const std::string& name() const { return name_; }
  const Log& log() const { return log_; }

 private:
  // What does not change from call to call of the same plan.
  struct PlanEntry {
    std::shared_ptr<const Plan> plan;
    Signature signature;
    std::uint64_t kind = 0;
    std::size_t most_messages = 0;
    std::uint64_t agreed = 0;   // agreement_.forgotten() + 1 when members agreed on it; 0: not yet
    Operation* home = nullptr;  // where it is repeated; stays here when another plan comes
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

  // Runs the action; what it throws fails the communicator and is kept for the user.
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
  status::CommunicatorStatus* status_ = nullptr;  // what others may read of this; perhaps none
  status::MemberNotes notes_;                     // the same, of the other members
  std::int64_t requested_ns_ = 0;                 // when a reader's request was last served
  std::vector<bool> requested_;  // by rank: whether it has yet to answer the question of such a request
  std::unique_ptr<timeline::Track> track_;

  std::vector<std::unique_ptr<Operation>> slots_;
  std::vector<std::uint32_t> free_slots_;  // the last one given back is taken first
  std::vector<Operation*> active_;         // in the order of their calls
  std::array<PlanEntry, 64> plan_entries_ = {};
  PlanEntry* last_repeated_ = plan_entries_.data();
  std::uint64_t last_started_ = 0;  // collective call
  std::uint64_t call_hash_ = 0;     // of all of them
  std::uint64_t last_exchange_ = 0;
  std::uint64_t last_finished_ = 0;

  std::vector<std::optional<std::uint64_t>> left_;  // by rank: its last call
  bool anybody_left_ = false;

  std::atomic<bool> failed_{false};
  std::optional<CommunicatorFailure> failure_;
  std::exception_ptr error_;
  bool told_user_ = false;
  bool keeps_memory_ = false;
  std::vector<Transport::SmallMessage> of_survivors_;  // SurviveMessages before begin_shrinking()
  Operation* moving_ = nullptr;                        // for the text of what it throws

  static constexpr node::PollLimits no_looks{};
};

}  // namespace lockstep
