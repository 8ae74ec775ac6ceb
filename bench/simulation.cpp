// SPDX-License-Identifier: Apache-2.0
// Runs simulated members in turns: each has a real engine, and all share a simulated clock and network.
#include "bench/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <queue>

#include "bench/buffers.hpp"
#include "bench/simulated_plans.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/simulated/named.hpp"
#include "collectives/simulated/simulated_platform.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::bench {
namespace {

using simulated::SimulatedNetwork;
using simulating::Plans;
using SimulatedEngine = Engine<simulated::SimulatedPlatform>;

// Is the time after which waiting members look at the clock if nothing else happens.
constexpr Duration tick = std::chrono::milliseconds(100);
constexpr std::size_t simulated_cache = std::size_t{32} << 20U;  // bytes, on all machines
constexpr std::uint64_t most_acts_of_a_call = 100'000;           // of each member; more acts mean an endless loop

// Wraps a kernel and counts its work. Without a kernel it only counts.
struct CountedKernel {
  const Kernel* kernel;
  std::size_t element_bytes;
  double bytes_per_us;
  SimulatedNetwork* network;
  int rank;

  static void apply(const void* state, void* target, const void* left, const void* right, std::size_t count) {
    const auto& mine = *static_cast<const CountedKernel*>(state);
    const auto bytes = static_cast<double>(count * mine.element_bytes);
    mine.network->work(mine.rank, Duration(std::llround(bytes / mine.bytes_per_us * 1000)));
    if (mine.kernel != nullptr) mine.kernel->two(target, left, right, count);
  }
};

// Gives the members of a simulation without data addresses of their own. Nothing reads or writes there, so there is no
// memory behind them.
class UnusedBuffers {
 public:
  explicit UnusedBuffers(const Scenario& scenario) {
    for (const SimulatedCall& call : scenario.calls)
      most_ = std::max<std::size_t>(most_, memory_of(call.subject, scenario.size()));
  }
  const void* input(const SimulatedCall& call, int rank) const {
    const bool in_place = call.subject.in_place || call.subject.collective == Collective::broadcast;
    return in_place ? output(rank) : at(2 * static_cast<std::uintptr_t>(rank));
  }
  void* output(int rank) const { return at(2 * static_cast<std::uintptr_t>(rank) + 1); }

 private:
  void* at(std::uintptr_t place) const {
    constexpr std::uintptr_t begin = std::uintptr_t{1} << 44U;
    return reinterpret_cast<void*>(begin + place * most_);  // NOLINT(performance-no-int-to-ptr): it is never used
  }

  std::uintptr_t most_ = 4096;
};
static_assert(sizeof(CountedKernel) <= UserReduce::state_bytes);

// Charges a member's core for what it does in the memory of its node.
class RoomWork {
 public:
  // Charges the steps and bytes since the last time. Does nothing without a room.
  void charge(SimulatedNetwork& network, int rank, const simulated::FabricShape& fabric, node::Room* room) {
    if (room == nullptr) return;
    const double steps = room->ring().last() - std::exchange(steps_, room->ring().last());
    const auto bytes = static_cast<double>(room->copied_bytes() - std::exchange(moved_, room->copied_bytes()));
    const double us = steps * fabric.memory_us + bytes / fabric.memory_bytes_per_us;
    network.work(rank, Duration(std::llround(us * 1000)));
  }

 private:
  node::StepNumber steps_ = 0;  // steps and bytes that were already charged
  std::uint64_t moved_ = 0;
};

// Counts the calls that a member has begun, and those that it may begin.
struct ProgramPosition {
  std::size_t next = 0;
  std::size_t allowed = std::numeric_limits<std::size_t>::max();
};

// Runs a member's program: its calls in order, some of them at the same time.
class Actor {
 public:
  Actor(const Scenario& scenario, SimulatedNetwork& network, Plans& plans, UnusedBuffers& unused, int rank,
        std::unique_ptr<node::Room> room, const Log& log)
      : scenario_(scenario),
        network_(network),
        plans_(plans),
        unused_(unused),
        rank_(rank),
        finished_(scenario.calls.size()) {
    for (const SimulatedFault& fault : scenario.faults) {
      if (fault.member == rank) fault_ = fault;
    }
    engine_ = std::make_unique<SimulatedEngine>(
        simulated::SimulatedPlatform(network, rank, std::move(room), scenario.has_checksums()),
        EngineOptions{.wait_limits = scenario.wait_limits, .log = log, .name = "simulated", .is_published = false});
  }

  // Does everything that can be done now. Returns true if anything was done.
  bool act();
  // Lets time pass, because nothing else happens.
  void look();
  // Allows calls up to this number to begin.
  void allow(std::size_t calls) { position_.allowed = calls; }
  std::size_t finished() const { return end_.finished; }
  bool is_over() const { return over_; }
  bool is_gone() const { return end_.kind == SimulatedEndKind::gone; }
  const SimulatedEnd& end() const { return end_; }
  const std::string& wrong() const { return wrong_; }
  Duration stopped_until() const { return stopped_until_; }
  Duration finished(std::size_t call) const { return finished_[call]; }

 private:
  struct ActiveCall {
    std::size_t call;
    std::optional<CallTicket> ticket;  // There is none if the call ended when it began.
    std::unique_ptr<Buffers> buffers;
  };
  template <class Action>
  bool guarded(const Action& action);
  bool has_ended(const ActiveCall& call) { return !call.ticket || engine_->test(*call.ticket); }
  bool begin();
  // True if its core works on what it has done. With a fabric, a member does nothing else meanwhile.
  bool is_busy() const { return scenario_.fabric && network_.free_at(rank_) > network_.now(); }
  bool meets_fault();
  void charge_room_work() {
    if (scenario_.fabric && engine_) room_work_.charge(network_, rank_, *scenario_.fabric, engine_->platform().room());
  }
  void start(const SimulatedCall& call);
  void count_work(Call& made, const SimulatedCall& call);
  static void copy(void* actor, void* to, const void* from, std::size_t bytes);
  bool finish_some();
  void finish(ActiveCall& active);
  void end(SimulatedEndKind kind);

  static constexpr std::byte presence{1};  // the data of a barrier

  const Scenario& scenario_;
  SimulatedNetwork& network_;
  Plans& plans_;
  UnusedBuffers& unused_;
  int rank_;
  std::optional<SimulatedFault> fault_;
  std::unique_ptr<SimulatedEngine> engine_;
  std::deque<ActiveCall> active_;  // calls that were under way at the end stay, since the engine may use their memory
  std::vector<Duration> finished_;
  ProgramPosition position_;
  RoomWork room_work_;
  Duration stopped_until_{};
  bool over_ = false;
  SimulatedEnd end_;
  std::string wrong_;
};

template <class Action>
bool Actor::guarded(const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    end_.code = error.code();
    end_.error = error.what();
    end(SimulatedEndKind::failed);
    return true;
  }
}

// Ends calls and begins new ones until nothing moves. Members that have ended still answer others.
bool Actor::act() {
  if (is_gone() || network_.now() < stopped_until_) return false;
  bool any = false;
  while (engine_->progress()) {  // a member that has ended still answers
    any = true;
    charge_room_work();
    if (is_busy()) return true;
  }
  charge_room_work();
  if (over_ || is_busy()) return any;
  return guarded([&] {
    for (bool more = true; more && !over_;) {
      more = finish_some();
      while (!over_ && position_.next < std::min(position_.allowed, scenario_.calls.size()) &&
             active_.size() < scenario_.in_flight && begin())
        more = true;
      any = any || more;
    }
    if (!over_ && position_.next == scenario_.calls.size() && active_.empty()) end(SimulatedEndKind::well);
    return any;
  });
}

void Actor::look() {
  if (is_gone() || over_ || network_.now() < stopped_until_ || active_.empty()) return;
  guarded([&] {
    if (has_ended(active_.front())) {
      finish(active_.front());
      active_.pop_front();
    }
    return true;
  });
}

bool Actor::begin() {
  if (fault_ && position_.next + 1 == static_cast<std::size_t>(fault_->call) && meets_fault()) return false;
  start(scenario_.calls[position_.next]);
  return true;
}

// Returns true if the fault keeps the member from making the call now.
bool Actor::meets_fault() {
  const SimulatedFault fault = *fault_;
  switch (fault.kind) {
    case SimulatedFaultKind::dies:
      end(SimulatedEndKind::gone);
      return true;
    case SimulatedFaultKind::leaves:
      end(SimulatedEndKind::gone);
      engine_.reset();
      return true;
    case SimulatedFaultKind::stops:
      stopped_until_ = network_.now() + fault.lasts;
      fault_.reset();
      return true;
    case SimulatedFaultKind::flips:
      network_.flip_next(rank_);
      fault_.reset();
      return false;
    case SimulatedFaultKind::differs:
      return false;
  }
  return false;
}

// Makes the call of the scenario with buffers of its own. A member that `differs` gives another element type.
void Actor::start(const SimulatedCall& call) {
  const auto plan = plans_.of(position_.next, rank_);
  ActiveCall& active = active_.emplace_back();
  active.call = position_.next;
  if (scenario_.has_data) {
    active.buffers = std::make_unique<Buffers>(call.subject, scenario_.size(), rank_);
    active.buffers->fill();
  }
  const void* const input = active.buffers ? active.buffers->input() : unused_.input(call, rank_);
  Call made{.plan = plan,
            .input = call.subject.collective == Collective::barrier ? &presence : input,
            .output = active.buffers ? active.buffers->output() : unused_.output(rank_),
            .kernel = reduces(call.subject.collective) ? find_kernel(call.subject.type, call.subject.op) : nullptr,
            .origin = {"call", static_cast<int>(position_.next) + 1}};
  if (scenario_.fabric) count_work(made, call);
  const bool differs = fault_ && fault_->kind == SimulatedFaultKind::differs &&
                       position_.next + 1 == static_cast<std::size_t>(fault_->call);
  if (differs) {
    auto other = std::make_shared<Plan>(*plan);
    other->spec.type = size_of(call.subject.type) == 1 ? DataType::f64 : DataType::u8;
    made.plan = std::move(other);
  }
  ++position_.next;
  active.ticket = engine_->start(made);
}

// Lets the member's core take time for the copies and reductions of rounds.
void Actor::count_work(Call& made, const SimulatedCall& call) {
  made.copy_replacement = {Actor::copy, this};
  if (made.kernel == nullptr) return;
  const CountedKernel counted{scenario_.has_data ? made.kernel : nullptr, size_of(call.subject.type),
                              scenario_.fabric->combined_bytes_per_us, &network_, rank_};
  made.user.apply = CountedKernel::apply;
  std::memcpy(made.user.state.data(), &counted, sizeof counted);
  made.user.has_state = true;
}

void Actor::copy(void* actor, void* to, const void* from, std::size_t bytes) {
  auto& mine = *static_cast<Actor*>(actor);
  const double us = static_cast<double>(bytes) / mine.scenario_.fabric->memory_bytes_per_us;
  mine.network_.work(mine.rank_, Duration(std::llround(us * 1000)));
  if (mine.scenario_.has_data) std::memmove(to, from, bytes);
}

// Ends the calls that are complete, in any order. Returns true if there was one.
bool Actor::finish_some() {
  bool any = false;
  for (auto active = active_.begin(); active != active_.end();) {
    if (!has_ended(*active)) {
      ++active;
      continue;
    }
    finish(*active);
    active = active_.erase(active);
    any = true;
  }
  return any;
}

// Checks every element of the result, and keeps the first wrong one for the verdict.
void Actor::finish(ActiveCall& active) {
  if (scenario_.spoil && active.buffers) scenario_.spoil(rank_, active.call, *active.buffers);
  std::uint64_t bits = 0;
  const std::uint64_t wrong = active.buffers ? active.buffers->count_wrong(bits) : 0;
  if (wrong > 0 && wrong_.empty())
    wrong_ = text("rank ", rank_, " has ", wrong, " wrong elements after call ", active.call + 1, ", ",
                  scenario_.calls[active.call].to_text(), " by ", plans_.algorithm(active.call));
  charge_room_work();
  finished_[active.call] = network_.free_at(rank_);
  ++end_.finished;
}

// Ends the program. The memory of its calls stays, because messages may still use it.
void Actor::end(SimulatedEndKind kind) {
  over_ = true;
  end_.kind = kind;
  end_.at = network_.now();
}

// Decides the order of the members' acts, and judges the outcome.
class SimulationRun {
 public:
  explicit SimulationRun(const Scenario& scenario)
      : scenario_(scenario),
        network_(scenario.size(), scenario.seed, scenario.fabric ? &*scenario.fabric : nullptr, scenario.has_data),
        plans_(scenario),
        unused_(scenario),
        due_(static_cast<std::size_t>(scenario.size()), never) {
    for (int node = 0; node < scenario.nodes; ++node) enter(node);
  }

  SimulationResult run();

 private:
  struct WakeUp {
    Duration at;
    std::uint64_t order;
    int member;
    bool operator>(const WakeUp& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  static constexpr Duration never = Duration::max();

  void enter(int node);
  Actor& actor(int member) { return *actors_[static_cast<std::size_t>(member)]; }
  bool all_over() const {
    return std::ranges::all_of(actors_, [](const auto& each) { return each->is_over(); });
  }
  void wake(int member, Duration at);
  void wake_node(int member, Duration at);
  void act(int member);
  void begin_next();
  void wait_a_tick();
  std::string judged(const SimulationResult& all) const;
  std::string judged(int member, const SimulatedEnd& end) const;

  const Scenario& scenario_;
  SimulatedNetwork network_;
  Plans plans_;
  UnusedBuffers unused_;
  Log log_{LogLevel::error, [](LogLevel, std::string_view) {}};
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<Duration> due_;  // by member: the time of its next act
  std::priority_queue<WakeUp, std::vector<WakeUp>, std::greater<>> wake_ups_;
  std::uint64_t order_ = 0;
  std::uint64_t acts_ = 0;
  std::vector<Duration> begun_{Duration{}};  // the start of each call, if all begin it together
};

// Makes the members of one node, with shared memory if the scenario has it.
void SimulationRun::enter(int node) {
  std::shared_ptr<std::byte> memory;
  if (scenario_.meets()) memory = SharedMemory::make(node::RoomMemory::bytes_for(scenario_.members), false).memory();
  for (int i = 0; i < scenario_.members; ++i) {
    std::unique_ptr<node::Room> room;
    if (scenario_.meets()) room = std::make_unique<node::Room>(memory, i, scenario_.members, true);
    if (room) room->thresholds().set(node::guessed_tuning(scenario_.members, simulated_cache));
    if (room && !scenario_.has_data) room->write_strategy().turn_off();
    const int rank = node * scenario_.members + i;
    actors_.push_back(std::make_unique<Actor>(scenario_, network_, plans_, unused_, rank, std::move(room), log_));
    if (scenario_.fabric) actors_.back()->allow(1);
    wake(rank, Duration{});
  }
}

// Schedules the member's next act. Without a fabric it is mostly at once and sometimes late, to try many orders.
void SimulationRun::wake(int member, Duration at) {
  if (!scenario_.fabric) {  // mostly at once, sometimes late
    at += std::chrono::microseconds(network_.draw(30));
    if (network_.chance(2)) at += std::chrono::microseconds(network_.draw(30'000));
  }
  Duration& due = due_[static_cast<std::size_t>(member)];
  if (due <= at) return;
  due = at;
  wake_ups_.push({at, ++order_, member});
}

// Wakes the other members of the node, because they may wait for a step in its memory.
void SimulationRun::wake_node(int member, Duration at) {
  if (!scenario_.meets()) return;
  const int first = member / scenario_.members * scenario_.members;
  for (int each = first; each < first + scenario_.members; ++each) {
    if (each != member) wake(each, at);
  }
}

// Lets one member act. It acts again when its core is free.
void SimulationRun::act(int member) {
  Actor& one = actor(member);
  ++acts_;
  due_[static_cast<std::size_t>(member)] = never;
  if (network_.now() < one.stopped_until()) {
    wake(member, one.stopped_until());
    return;
  }
  if (scenario_.fabric && network_.free_at(member) > network_.now()) {
    wake(member, network_.free_at(member));
    return;
  }
  const bool moved = one.act();
  const Duration ready = network_.free_at(member);
  if (moved) wake(member, ready);
  if (moved) wake_node(member, ready);
  if (one.stopped_until() > network_.now()) wake(member, one.stopped_until());
}

// With a fabric all members begin a call together, when all have ended the one before.
void SimulationRun::begin_next() {
  const auto all_have = [&](std::size_t calls) {
    return std::ranges::all_of(actors_, [&](const auto& each) { return each->is_over() || each->finished() >= calls; });
  };
  if (!wake_ups_.empty() || !all_have(begun_.size()) || begun_.size() >= scenario_.calls.size()) return;
  begun_.push_back(network_.now());
  for (int member = 0; member < scenario_.size(); ++member) {
    actor(member).allow(begun_.size());
    wake(member, network_.now());
  }
}

// Nothing happens before the next tick, so the waiting members look at the clock.
void SimulationRun::wait_a_tick() {
  network_.set_clock(network_.now() + tick);
  for (int member = 0; member < scenario_.size(); ++member) {
    actor(member).look();
    wake(member, network_.now());
  }
}

// Goes from event to event until all members have ended. Too many acts mean an endless loop, which is a defect.
SimulationResult SimulationRun::run() {
  SimulationResult all;
  const std::uint64_t most = most_acts_of_a_call * static_cast<std::uint64_t>(scenario_.size());
  while (!all_over() && acts_ < most) {
    const Duration quiet = network_.now() + tick;
    const std::optional<Duration> event = network_.next();
    const Duration turn = wake_ups_.empty() ? never : wake_ups_.top().at;
    const Duration first = std::min(event.value_or(never), turn);
    if (first > quiet) {
      wait_a_tick();
      continue;
    }
    network_.set_clock(std::max(network_.now(), first));
    network_.deliver();
    for (const int member : network_.take_woken()) wake(member, network_.now());
    while (!wake_ups_.empty() && wake_ups_.top().at <= network_.now()) {
      const WakeUp now = wake_ups_.top();
      wake_ups_.pop();
      if (due_[static_cast<std::size_t>(now.member)] == now.at) act(now.member);
    }
    if (scenario_.fabric) begin_next();
  }
  if (!all_over()) all.wrong = text("no end after ", acts_, " turns");
  for (const auto& each : actors_) {
    all.ends.push_back(each->end());
    if (all.wrong.empty()) all.wrong = each->wrong();
  }
  for (std::size_t call = 0; call < scenario_.calls.size(); ++call) {
    Duration last{};
    bool all_have = true;
    for (const auto& each : actors_) {
      const Duration at = each->finished(call);
      last = std::max(last, at);
      all_have = all_have && at > Duration{};
    }
    all.calls.push_back(all_have ? last - (call < begun_.size() ? begun_[call] : Duration{}) : Duration{});
    all.algorithms.emplace_back(plans_.algorithm(call));
  }
  all.messages = network_.messages();
  all.bytes_between_nodes = network_.bytes_between_nodes();
  all.acts = acts_;
  network_.close();
  if (all.wrong.empty()) all.wrong = judged(all);
  return all;
}

std::string SimulationRun::judged(const SimulationResult& all) const {
  for (int member = 0; member < scenario_.size(); ++member) {
    std::string wrong = judged(member, all.ends[static_cast<std::size_t>(member)]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// An error is right only if a fault explains it, its code is one for faults of others, and its text names the member at
// fault.
std::string SimulationRun::judged(int member, const SimulatedEnd& end) const {
  if (end.kind != SimulatedEndKind::failed) return {};
  const auto is_harmless = [&](const SimulatedFault& fault) {
    return fault.kind == SimulatedFaultKind::stops &&
           fault.lasts + std::chrono::seconds(1) < scenario_.wait_limits.limit;
  };
  if (std::ranges::all_of(scenario_.faults, is_harmless))
    return text("rank ", member, " fails, and nothing is wrong: ", end.error);
  if (end.code != Code::stall && end.code != Code::mismatch && end.code != Code::peer_failed &&
      end.code != Code::corrupt)
    return text("rank ", member, " has another error than those of others: ", end.error);
  const auto is_named = [&](const SimulatedFault& fault) {
    return fault.member == member || simulated::names(end.error, fault.member);
  };
  if (std::ranges::none_of(scenario_.faults, is_named))
    return text("rank ", member, " names no member at fault: ", end.error);
  return {};
}

}  // namespace

// With a fabric every call is made twice. The first time includes the agreement of the members, which a repeated call
// does not need. Very many members make it once, to save time.
SimulationResult simulate(const Scenario& scenario) {
  constexpr int many = 4096;
  if (!scenario.fabric || (!scenario.has_data && scenario.size() > many)) return SimulationRun(scenario).run();
  Scenario twice = scenario;
  twice.calls.clear();
  for (const SimulatedCall& call : scenario.calls) twice.calls.insert(twice.calls.end(), 2, call);
  for (SimulatedFault& fault : twice.faults) fault.call *= 2;
  SimulationResult all = SimulationRun(twice).run();
  for (std::size_t call = 0; call < scenario.calls.size(); ++call) {
    all.calls[call] = all.calls[2 * call + 1];
    all.algorithms[call] = all.algorithms[2 * call + 1];
  }
  all.calls.resize(scenario.calls.size());
  all.algorithms.resize(scenario.calls.size());
  return all;
}

}  // namespace lockstep::bench
