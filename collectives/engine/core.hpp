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
#include "collectives/engine/book.hpp"
#include "collectives/engine/record.hpp"
#include "collectives/engine/runner.hpp"
#include "collectives/engine/stall.hpp"
#include "collectives/engine/timeline.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// A call in flight, for who started it. To be waited for, or tested until it is true, or dropped; once.
struct Ticket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  Collective collective = Collective::barrier;
  Origin origin = {};
};

// Why a communicator cannot be used any more.
struct Failure {
  Code code = Code::internal;
  std::string text;
};

class Core {
 public:
  // Calls that are planned for the node are done in the room, looking so often at what is missing, which may change.
  // `is_seen`: others may read what is called here; `id` is what all members have, and no other communicator.
  Core(Transport& transport, Patience patience, Log log, std::string name, node::Room* room = nullptr,
       const node::Looks& looks = no_looks, bool is_seen = true, std::uint64_t id = 0);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Ticket start(const Call& call);
  // As start(), for a call that is waited for at once. Nothing: it is done already. A call in the node's memory that is
  // made again, while no other is under way, is done in a few hundred instructions.
  std::optional<Ticket> run(const Call& call);
  // Moves what can be moved, and listens to the others if told to or if something waits for it; false when there was
  // nothing to do.
  bool turn(bool listening);
  // Whether there is nothing left to wait for: it is finished, or all has failed.
  bool is_over(const Ticket& ticket) const;
  // Throws what failed.
  void check_usable();
  // Gives the ticket back; throws what failed.
  void take(const Ticket& ticket);
  // Nothing moved: asks, warns, and fails as time goes by.
  void watch(const Ticket& ticket, Duration now);
  void drop(const Ticket& ticket) noexcept;
  // What the caller was refused for before a call began: the others would wait for it in vain, so they are told.
  void refuse(const Error& error) noexcept;
  void leave() noexcept;
  // For who makes a smaller communicator of this one: fails it if it has not failed, and gives back what others have
  // said of that. From then on the transport's words are the caller's.
  std::vector<Transport::Heard> begin_shrinking();

  bool is_idle() const { return active_.empty(); }
  // Whether what is waited for may be a neighbour in the room.
  bool is_meeting() const {
    return std::ranges::any_of(active_,
                               [](const Operation* each) { return each->plan().in_node || each->meets != nullptr; });
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  const std::optional<Failure>& failure() const { return failure_; }
  // Whether the transport could not call back all that was posted: its memory stays until the program ends.
  bool keeps_memory() const { return keeps_memory_; }
  const std::string& name() const { return name_; }
  const Log& log() const { return log_; }

 private:
  // What does not change from call to call of the same plan.
  struct Prepared {
    std::shared_ptr<const Plan> plan;
    Signature signature;
    std::uint64_t kind = 0;
    std::size_t most_messages = 0;
    std::uint64_t agreed = 0;   // when it was: so often had been forgotten, and once
    Operation* home = nullptr;  // where it is repeated; stays here when another plan comes
  };

  Prepared& prepare(const std::shared_ptr<const Plan>& plan);
  Prepared& place_of(const std::shared_ptr<const Plan>& plan);
  Prepared* repeated(const Call& call);
  void make_home(Prepared& prepared, const Call& call);
  Ticket keep(Operation& operation);
  Operation& take_slot();
  Operation& operation_of(const Ticket& ticket) const;
  void release(Operation& operation);
  void number(Operation& operation, Prepared& prepared);
  void mark(Operation& operation, const Prepared& prepared);
  void agree(Operation& operation, const Recorded& recorded);
  bool send_off(Operation& operation);
  void check_present(const Operation& operation);
  bool move(Operation& operation);
  void sweep();

  bool listen();
  void hear(int peer, const Agree& word);
  void hear(int peer, const Ask& word);
  void hear(int peer, const Answer& word);
  void hear(int peer, const Fail& word);
  void hear(int peer, const Left& word);
  void hear(int peer, const Survive& word);
  void compare(int peer, const CallWord& theirs);
  CallWord word_of(const Recorded& recorded) const;
  void tell(int peer, const Word& word);
  void tell_all(const Word& word);

  Operation& what_it_waits_for(Operation& operation);
  void look(Operation& operation, Duration limit, Duration now);
  void ask(Operation& operation, const IndexSet& peers, bool anew);
  IndexSet near(const Operation& operation) const;
  IndexSet far(const Operation& operation) const;
  std::string standing(const Operation& operation, Duration quiet) const;
  Error stalled(const Operation& operation, Duration quiet, bool by_program) const;
  void write_what_is_waited_for(const Operation& operation, const IndexSet& peers);
  void leave_book() noexcept;
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
  void fail(std::exception_ptr error, Failure failure, bool tell_others) noexcept;
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
  Record record_;
  book::Page* page_ = nullptr;  // what others may read of this; perhaps none
  std::unique_ptr<timeline::Track> track_;

  std::vector<std::unique_ptr<Operation>> slots_;
  std::vector<std::uint32_t> free_slots_;  // the last one given back is taken first
  std::vector<Operation*> active_;         // in the order of their calls
  std::array<Prepared, 64> prepared_ = {};
  Prepared* last_repeated_ = prepared_.data();
  std::uint64_t last_started_ = 0;  // collective call
  std::uint64_t history_ = 0;       // of all of them
  std::uint64_t last_exchange_ = 0;
  std::uint64_t last_finished_ = 0;

  std::vector<std::optional<std::uint64_t>> left_;  // by rank: its last call
  bool anybody_left_ = false;

  std::atomic<bool> failed_{false};
  std::optional<Failure> failure_;
  std::exception_ptr error_;
  bool told_user_ = false;
  bool keeps_memory_ = false;
  std::vector<Transport::Heard> of_survivors_;  // what they said before this member was one
  Operation* moving_ = nullptr;                 // for the text of what it throws

  static constexpr node::Looks no_looks{};
};

}  // namespace lockstep
