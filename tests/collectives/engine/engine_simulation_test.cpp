// SPDX-License-Identifier: Apache-2.0
// The real engine under a fake clock: thousands of runs with members, messages and faults in an order drawn from a
// seed. Every living member must end with the right result or with an error that names a member, within its limits.
// SIMULATION_SEED=n repeats one run and tells what happens; SIMULATION_RUNS=n sets how many there are.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>

#include "collectives/simulated/named.hpp"
#include "collectives/simulated/simulated_platform.hpp"
#include "tests/collectives/engine/engine_support.hpp"

namespace lockstep::test {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

using simulated::SimulatedNetwork;
using SimulatedEngine = Engine<simulated::SimulatedPlatform>;

enum class Fault { none, slow, absent, dies, different, throws, drops, leaves };
constexpr std::array fault_names = {"none", "slow", "absent", "dies", "different", "throws", "drops", "leaves"};
constexpr WaitLimits wait_limits = {seconds(1), seconds(3)};
constexpr float spoiled = -7;

// A call of the program that all members run.
struct Step {
  enum class Kind { all_reduce, broadcast, message };
  Kind kind = Kind::all_reduce;
  std::size_t count = 0;
  int root = 0;  // of a message: from here to the next member
  Cut cut = {};
};

struct Story {
  int size = 2;
  std::vector<Step> steps;
  Fault fault = Fault::none;
  int culprit = 0;
  std::size_t at = 0;  // the step at which it goes wrong

  std::string to_text() const {
    return text(size, " members, ", steps.size(), " calls, fault ", fault_names[static_cast<std::size_t>(fault)],
                " of rank ", culprit, " at call ", at);
  }
};

Story make_story(SimulatedNetwork& network, int size) {
  Story story{.size = size};
  for (std::uint64_t left = 1 + network.draw(8); left > 0; --left) {
    Step step{.kind = static_cast<Step::Kind>(network.draw(3)),
              .count = network.draw(30),
              .root = static_cast<int>(network.draw(static_cast<std::uint64_t>(size)))};
    if (network.chance(40)) step.cut = {1 + network.draw(12), 1 + static_cast<int>(network.draw(4))};
    story.steps.push_back(step);
    if (network.chance(30)) story.steps.push_back(step);  // a kind that is agreed on already
  }
  story.fault = network.chance(30) ? Fault::none : static_cast<Fault>(1 + network.draw(fault_names.size() - 1));
  story.culprit = static_cast<int>(network.draw(static_cast<std::uint64_t>(size)));
  story.at = network.draw(story.steps.size());
  // Messages match by their order alone, so a message less is not seen, but the next one is taken for it.
  Step& wrong = story.steps[story.at];
  if (story.fault == Fault::different && wrong.kind == Step::Kind::message) wrong.kind = Step::Kind::all_reduce;
  return story;
}

// One member that runs the program: any call of its engine is one act.
class Actor {
 public:
  Actor(SimulatedNetwork& network, const Story& story, int rank, Lines& lines)
      : network_(network), story_(story), rank_(rank), window_(1 + network.draw(5)) {
    engine_ = std::make_unique<SimulatedEngine>(
        simulated::SimulatedPlatform(network, rank),
        EngineOptions{.wait_limits = wait_limits, .log = lines.log(), .name = "simulated"});
    ending_ = network.draw(3);
  }

  void act();
  bool is_over() const { return over_; }
  bool is_dead() const { return dead_; }
  const std::string& error() const { return error_; }
  Code code() const { return code_; }
  std::size_t checked() const { return checked_; }
  std::size_t started() const { return next_; }
  // Nothing is written to memory of calls that failed.
  void check_untouched() const {
    if (dead_ || error_.empty()) return;
    for (const auto& flight : kept_) EXPECT_EQ(flight->out, std::vector<float>(flight->out.size(), spoiled));
  }

 private:
  struct Flight {
    CallTicket ticket;
    std::vector<float> in;
    std::vector<float> out;
    std::vector<float> expected;
  };

  bool is_culprit(Fault fault) const { return story_.fault == fault && rank_ == story_.culprit; }
  void begin();
  void start(const Step& step, bool sends);
  Step step_now() const;
  void finish(std::size_t at);
  void end();

  SimulatedNetwork& network_;
  const Story& story_;
  int rank_;
  std::size_t window_;
  std::uint64_t ending_;
  std::unique_ptr<SimulatedEngine> engine_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<std::unique_ptr<Flight>> kept_;  // memory of calls that were not finished
  std::size_t next_ = 0;
  std::size_t checked_ = 0;
  bool over_ = false;
  bool dead_ = false;
  std::string error_;
  Code code_ = Code::internal;
};

void Actor::act() {
  if (dead_) return;
  if (is_culprit(Fault::slow) && !network_.chance(20)) return;
  if (over_) {  // some go on listening, some leave, some do nothing any more
    if (engine_ && ending_ == 0) engine_->progress();
    return;
  }
  if (is_culprit(Fault::dies) && next_ >= story_.at && network_.chance(20)) {
    dead_ = true;
    return;
  }
  try {
    if (next_ < story_.steps.size() && flights_.size() < window_ && network_.chance(40)) {
      begin();
    } else if (flights_.empty() || network_.chance(10)) {
      engine_->progress();
    } else {
      const std::size_t at = network_.draw(flights_.size());
      if (engine_->test(flights_[at]->ticket)) finish(at);
    }
    if (next_ == story_.steps.size() && flights_.empty()) end();
  } catch (const Error& error) {
    code_ = error.code();
    error_ = error.what();
    end();
  } catch (const std::runtime_error& error) {
    code_ = Code::usage;
    error_ = error.what();
    end();
  }
}

void Actor::begin() {
  if (next_ == story_.at) {
    if (is_culprit(Fault::absent)) {
      dead_ = true;
      return;
    }
    if (is_culprit(Fault::leaves)) {
      error_ = "left";
      if (!flights_.empty()) code_ = Code::peer_failed;
      ending_ = 1;
      end();
      return;
    }
    if (is_culprit(Fault::drops) && !flights_.empty()) {
      engine_->drop(flights_.front()->ticket);
      kept_.push_back(std::move(flights_.front()));
      flights_.erase(flights_.begin());
    }
  }
  const Step step = step_now();
  const int receiver = (step.root + 1) % story_.size;
  ++next_;
  if (step.kind != Step::Kind::message || rank_ == step.root) start(step, true);
  if (step.kind == Step::Kind::message && rank_ == receiver) start(step, false);
}

Step Actor::step_now() const {
  Step step = story_.steps[next_];
  if (is_culprit(Fault::different) && next_ == story_.at) {
    step.kind = Step::Kind::all_reduce;
    ++step.count;
  }
  return step;
}

void Actor::start(const Step& step, bool sends) {
  const int salt = static_cast<int>(next_);
  auto flight = std::make_unique<Flight>();
  flight->in = given(rank_, step.count, salt);
  flight->out.resize(step.count, -1);
  std::shared_ptr<Plan> plan;
  if (step.kind == Step::Kind::all_reduce) {
    plan = all_reduce_plan(story_.size, rank_, step.count, ReduceOp::sum, step.cut);
    plan->choice.method_hash = 100 * static_cast<std::uint64_t>(step.cut.depth) + step.cut.segment;
    flight->expected = summed(story_.size, step.count, salt);
  } else if (step.kind == Step::Kind::broadcast) {
    plan = broadcast_plan(story_.size, rank_, step.count, step.root);
    flight->expected = given(step.root, step.count, salt);
  } else {
    const int peer = sends ? (step.root + 1) % story_.size : step.root;
    plan = message_plan(story_.size, rank_, sends, peer, step.count);
    flight->expected = sends ? flight->out : given(step.root, step.count, salt);
  }
  Call call = call_of(std::move(plan), flight->in, flight->out, Origin{"story.cpp", static_cast<int>(next_)});
  if (is_culprit(Fault::throws) && next_ > story_.at) {
    call.user.apply = [](const void*, void*, const void*, const void*, std::size_t) {
      throw std::runtime_error("thrown by a reduction");
    };
  }
  kept_.push_back(std::move(flight));
  kept_.back()->ticket = *engine_->start(call);
  flights_.push_back(std::move(kept_.back()));
  kept_.pop_back();
}

void Actor::finish(std::size_t at) {
  EXPECT_EQ(flights_[at]->out, flights_[at]->expected) << "on rank " << rank_;
  ++checked_;
  flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Actor::end() {
  over_ = true;
  for (auto& flight : flights_) kept_.push_back(std::move(flight));
  flights_.clear();
  if (ending_ == 1) engine_.reset();
  if (engine_ && !engine_->failed()) return;
  for (auto& flight : kept_) {  // the memory is the program's again
    flight->in.assign(flight->in.size(), spoiled);
    flight->out.assign(flight->out.size(), spoiled);
  }
}

// How runs ended, by fault: that the interesting errors do come.
struct Tally {
  std::array<std::array<int, 100>, fault_names.size()> codes = {};
  std::array<int, fault_names.size()> well = {};
};

void judge(const Story& story, const Actor& actor, int rank, Tally& tally) {
  const auto fault = static_cast<std::size_t>(story.fault);
  if (actor.error().empty()) {
    ++tally.well[fault];
    return;
  }
  if (rank == story.culprit && story.fault != Fault::different) return;
  ++tally.codes[fault][static_cast<std::size_t>(actor.code())];
  const bool innocent = story.fault == Fault::none || story.fault == Fault::slow;
  EXPECT_FALSE(innocent) << actor.error();
  // Who waits for a message names its peer, which may itself wait for the culprit.
  const bool direct = rank != story.culprit && actor.error().find("(message ") == std::string::npos;
  EXPECT_TRUE(!direct || simulated::names(actor.error(), story.culprit)) << "rank " << rank << ": " << actor.error();
  EXPECT_TRUE(actor.code() == Code::mismatch || actor.code() == Code::stall || actor.code() == Code::peer_failed)
      << actor.error();
}

// Steps of the clock grow while nothing happens, so that waits of seconds pass quickly.
void run_story(std::uint64_t seed, Tally& tally, bool aloud) {
  SimulatedNetwork network(2 + static_cast<int>(seed % 5), seed);
  const Story story = make_story(network, network.size());
  const testing::ScopedTrace trace(__FILE__, __LINE__, text("SIMULATION_SEED=", seed, ": ", story.to_text()));
  if (aloud) std::cout << story.to_text() << '\n';
  Lines lines;
  std::vector<std::unique_ptr<Actor>> actors;
  for (int rank = 0; rank < story.size; ++rank) actors.push_back(std::make_unique<Actor>(network, story, rank, lines));
  const auto all_over = [&] {
    return std::ranges::all_of(actors, [](const auto& actor) { return actor->is_over() || actor->is_dead(); });
  };
  std::size_t progress = 0;
  int idle = 0;
  constexpr int most = 100'000;
  int acts = 0;
  for (; acts < most && !all_over(); ++acts) {
    network.deliver();
    const bool delivered = !network.take_woken().empty();
    Actor& actor = *actors[network.draw(actors.size())];
    const std::size_t before = actor.started() + actor.checked();
    actor.act();
    progress += actor.started() + actor.checked() - before;
    idle = delivered || actor.started() + actor.checked() != before ? 0 : idle + 1;
    network.set_clock(network.now() + microseconds(network.draw(idle < 100 ? 100 : 4000)));
  }
  while (const auto next = network.next()) {
    network.set_clock(*next);
    network.deliver();
  }
  EXPECT_LT(acts, most) << "a hang after " << progress << " steps";
  for (int rank = 0; rank < story.size; ++rank) {
    const Actor& actor = *actors[static_cast<std::size_t>(rank)];
    if (aloud) std::cout << "rank " << rank << ": " << actor.checked() << " calls, " << actor.error() << '\n';
    actor.check_untouched();
    if (!actor.is_dead()) judge(story, actor, rank, tally);
  }
  if (aloud) std::cout << lines.all();
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(EngineSimulation, RightOrAnErrorThatNamesSomebody) {
  Tally tally;
  if (const std::uint64_t seed = number("SIMULATION_SEED", 0); seed != 0) {
    run_story(seed, tally, true);
    return;
  }
  const std::uint64_t runs = number("SIMULATION_RUNS", 5000);
  for (std::uint64_t seed = 1; seed <= runs && !HasFailure(); ++seed) run_story(seed, tally, false);
  for (std::size_t fault = 0; fault < fault_names.size(); ++fault) {
    std::cout << fault_names[fault] << ": " << tally.well[fault] << " members ended well";
    for (std::size_t code = 0; code < 100; ++code) {
      if (tally.codes[fault][code] > 0) std::cout << ", " << tally.codes[fault][code] << " with E" << code;
    }
    std::cout << '\n';
  }
  const auto ended = [&](Fault fault, Code code) {
    return static_cast<std::uint64_t>(tally.codes[static_cast<std::size_t>(fault)][static_cast<std::size_t>(code)]);
  };
  // About half of what there is.
  EXPECT_GE(ended(Fault::absent, Code::stall), runs / 20);
  EXPECT_GE(ended(Fault::dies, Code::stall), runs / 25);
  EXPECT_GE(ended(Fault::different, Code::mismatch), runs / 6);
  EXPECT_GE(ended(Fault::throws, Code::peer_failed), runs / 10);
  EXPECT_GE(ended(Fault::drops, Code::peer_failed), runs / 16);
  EXPECT_GE(ended(Fault::leaves, Code::peer_failed), runs / 8);
  EXPECT_EQ(ended(Fault::leaves, Code::stall), 0U);  // who left is not waited for
}

}  // namespace
}  // namespace lockstep::test
