// SPDX-License-Identifier: Apache-2.0
// How survivors agree on who they are, with members as values: thousands of runs in which deaths, stops, cut links,
// failing parts and the order of everything are drawn from a seed. A member may die between any two words that it says.
// SURVIVORS_SEED=n repeats one run; SURVIVORS_RUNS=n sets how many there are.
#include "collectives/engine/shrink_consensus.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>

#include "tests/support/sanitized.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

using shrinking::BuildResult;
using shrinking::BuildState;
using shrinking::ShrinkConsensus;
using shrinking::ShrinkDecision;
using shrinking::ShrinkStage;

using std::chrono::milliseconds;
using std::chrono::seconds;
using PeerState = Transport::PeerState;

constexpr WaitLimits wait_limits = {seconds(1), seconds(3)};
constexpr WaitLimits impatience = {Duration{}, milliseconds(20)};  // so that several lead at once

// What may happen in a run beside deaths.
struct Trouble {
  bool stops = false;
  bool cuts = false;
  bool fails = false;
  bool leaves = false;  // who has done goes at once
  bool hurries = false;
};

class World {
 public:
  World(int size, std::uint64_t seed, Trouble trouble)
      : random_(seed), trouble_(trouble), wait_limits_(trouble.hurries ? impatience : wait_limits) {
    for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(rank, size, wait_limits_));
    deaths_left_ = static_cast<int>(draw(static_cast<std::uint64_t>(size)));
    for (auto& each : members_) each->begins_at = now_ + milliseconds(draw(20));
    if (trouble_.stops) {
      Member& one = any();
      one.stops_at = now_ + milliseconds(draw(40));
      one.goes_on_at = one.stops_at + (chance(50) ? Duration(seconds(1000)) : Duration(milliseconds(draw(6000))));
    }
    if (trouble_.cuts) cut();
    if (trouble_.fails && chance(50)) any().fails = true;
  }

  void run() {
    const Duration end = now_ + seconds(120);
    while (now_ < end && !is_over()) {
      turn();
      now_ += draw(1000) > 0 ? Duration(std::chrono::microseconds(draw(300))) : Duration(milliseconds(draw(600)));
    }
  }

  // What is wrong with how it ended; empty: nothing.
  std::string fault() const {
    if (const std::string both = disagreement(); !both.empty()) return both;
    std::optional<IndexSet> done;
    std::optional<std::string> failed;
    for (const auto& each : members_) {
      if (each->is_dead || is_stopped(*each)) continue;
      if (!each->result) return text("rank ", each->rank, " has not ended");
      const ShrinkDecision& result = *each->result;
      if (result.stage == ShrinkStage::done) {
        if (!each->has_built) return text("rank ", each->rank, " goes on without its part");
        if (!result.members.contains(each->rank)) return text("rank ", each->rank, " goes on without itself");
        if (done && *done != result.members)
          return text("two groups go on: ", done->to_string(), " and ", result.members.to_string());
        done = result.members;
        continue;
      }
      if (result.why.find("rank ") == std::string::npos) return text("nobody is named: ", result.why);
      if (failed && is_plain() && *failed != result.why) return text("two errors: ", *failed, "; ", result.why);
      failed = result.why;
    }
    for (const auto& each : members_) {
      if (done && !trouble_.cuts && !trouble_.hurries && !each->is_dead && !done->contains(each->rank))
        return text("rank ", each->rank, " lives and is left behind");
    }
    return is_plain() ? plain_fault(done, failed) : "";
  }

 private:
  struct Member {
    Member(int number, int size, WaitLimits given)
        : rank(number), state(number, size, given, "test"), from(static_cast<std::size_t>(size)) {
      known.resize(from.size());
      cut_at.resize(from.size(), Duration::max());
    }
    int rank;
    ShrinkConsensus state;
    std::vector<std::deque<Bytes>> from;  // on their way here, by who said them
    std::vector<PeerState> known;
    std::vector<Duration> cut_at;
    bool has_begun = false;
    Duration begins_at{};
    Duration stops_at = Duration::max();
    Duration goes_on_at = Duration::max();
    bool is_dead = false;
    bool has_left = false;
    bool has_built = false;
    bool fails = false;
    std::optional<IndexSet> building;
    Duration builds_since{};
    int words_left = 0;  // until it dies, so many more words
    bool is_dying = false;
    std::optional<ShrinkDecision> result;
  };

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned percent) { return draw(100) < percent; }
  Member& any() { return *members_[draw(members_.size())]; }
  bool is_stopped(const Member& one) const { return now_ >= one.stops_at && now_ < one.goes_on_at; }
  bool is_cut(const Member& one, int peer) const { return now_ >= one.cut_at[static_cast<std::size_t>(peer)]; }

  // One link, or all between two parts.
  void cut() {
    const Duration at = now_ + milliseconds(draw(40));
    const auto between = [&](Member& one, Member& other) {
      one.cut_at[static_cast<std::size_t>(other.rank)] = other.cut_at[static_cast<std::size_t>(one.rank)] = at;
    };
    if (chance(50)) return between(any(), any());
    std::vector<bool> part(members_.size());
    for (auto&& each : part) each = chance(50);
    for (auto& one : members_) {
      for (auto& other : members_) {
        if (part[static_cast<std::size_t>(one->rank)] != part[static_cast<std::size_t>(other->rank)])
          between(*one, *other);
      }
    }
  }

  bool is_over() const {
    return std::ranges::all_of(members_,
                               [&](const auto& each) { return each->is_dead || each->result || is_stopped(*each); });
  }

  // What it had said may be with it still, and not on its way.
  void die(Member& one) {
    one.is_dead = true;
    for (auto& other : members_) {
      auto& words = other->from[static_cast<std::size_t>(one.rank)];
      if (chance(30)) words.resize(draw(words.size() + 1));
    }
  }

  void turn() {
    Member& one = any();
    if (one.is_dead || is_stopped(one)) return;
    if (deaths_left_ > 0 && chance(2)) {
      --deaths_left_;
      if (chance(40) || !one.has_begun) {
        die(one);
        return;
      }
      one.is_dying = true;  // among its next words
      one.words_left = static_cast<int>(draw(2 * members_.size() + 1));
    }
    if (one.result) {
      if (trouble_.leaves) one.has_left = true;
      return;
    }
    if (!one.has_begun && now_ >= one.begins_at) {
      one.has_begun = true;
      one.state.begin(now_);
    }
    if (one.has_begun) act(one);
  }

  void act(Member& one) {
    for (std::size_t peer = 0; peer < members_.size(); ++peer) {
      if (chance(40)) handle(one, peer);
      if (chance(40)) look(one, peer);
    }
    if (one.building) {
      build(one);
    } else {
      one.state.move(now_);
      one.state.take_warning();
    }
    say(one);
    if (one.is_dead || one.building) return;
    if (const auto& verdict = one.state.verdict()) {
      if (verdict->stage == ShrinkStage::build) {
        one.building = verdict->members;
        one.builds_since = now_;
        entered_[{one.state.turn(), verdict->members.to_string()}].insert(one.rank);
      } else {
        one.result = *verdict;
      }
    }
  }

  void say(Member& one) {
    for (auto& saying : one.state.take_outgoing()) {
      if (one.is_dying && one.words_left-- == 0) {
        die(one);
        return;
      }
      Member& to = *members_[static_cast<std::size_t>(saying.peer)];
      const auto message = shrinking::parse_shrink_message(saying.bytes, static_cast<int>(members_.size()));
      if (const auto* word = std::get_if<shrinking::DecidedMessage>(&message.content))
        decided_[message.turn][one.rank] = word->verdict;
      if (!to.is_dead && !to.has_left && !is_cut(one, to.rank))
        to.from[static_cast<std::size_t>(one.rank)].push_back(std::move(saying.bytes));
    }
  }

  void handle(Member& one, std::size_t peer) {
    auto& words = one.from[peer];
    for (std::uint64_t most = draw(4); most > 0 && !words.empty(); --most) {
      one.state.handle(static_cast<int>(peer), words.front());
      words.pop_front();
    }
  }

  // The end of another one is seen when all that it said is heard; a cut link when it has been silent for long.
  void look(Member& one, std::size_t peer) {
    const Member& other = *members_[peer];
    const bool is_cut_off = is_cut(one, other.rank);
    if (one.from[peer].empty() && (other.is_dead || other.has_left) && !is_cut_off && chance(30))
      one.state.report_state(other.rank, PeerState::ended);
    if (is_cut_off && now_ > one.cut_at[peer] + milliseconds(500) && chance(30))
      one.state.report_state(other.rank, PeerState::silent);
  }

  // It takes everybody's part. Who sees that somebody is gone fails, if it does not have all that it needs already.
  void build(Member& one) {
    const auto members = one.building->members();
    const auto& here = entered_.at({one.state.turn(), one.building->to_string()});
    const bool all_here = here.size() == members.size();
    const auto is_gone = [&](int rank) {
      const Member& each = *members_[static_cast<std::size_t>(rank)];
      return each.is_dead || each.has_left || is_cut(one, rank);
    };
    BuildResult part;
    if (one.fails && chance(20)) {
      part = {BuildState::failed, Code::out_of_memory, "rank has no memory"};
    } else if (all_here && chance(20)) {
      part = {BuildState::built, Code::internal, ""};
    } else if ((std::ranges::any_of(members, is_gone) && chance(20)) || (one.state.why_build_fails() && chance(50))) {
      part = {BuildState::unlucky, Code::peer_failed, "rank is gone"};
    } else if (now_ - one.builds_since > wait_limits_.limit) {
      part = {BuildState::unlucky, Code::stall, "rank did not come"};
    } else {
      return;
    }
    one.building.reset();
    one.has_built = part.state == BuildState::built;
    one.state.report_build(part, now_);
  }

  // Whoever does not die is there, and heard.
  bool is_plain() const { return !trouble_.stops && !trouble_.cuts && !trouble_.hurries; }

  // What those that live hold for decided in a turn is one.
  std::string disagreement() const {
    for (const auto& [turn, said] : decided_) {
      const ShrinkDecision* known = nullptr;
      for (const auto& [rank, verdict] : said) {
        if (members_[static_cast<std::size_t>(rank)]->is_dead) continue;
        if (known != nullptr && *known != verdict) return text("turn ", turn, " has two decisions, one by rank ", rank);
        known = &verdict;
      }
    }
    return {};
  }

  std::string plain_fault(const std::optional<IndexSet>& done, const std::optional<std::string>& failed) const {
    if (done && failed) return text("some go on, others do not: ", *failed);
    if (failed && !trouble_.fails) return text("they do not go on: ", *failed);
    for (const auto& each : members_) {
      if (!done) break;
      const bool is_in = done->contains(each->rank);
      if (each->is_dead && !each->has_begun && is_in) return text("rank ", each->rank, " never came and is in it");
    }
    return {};
  }

  std::mt19937_64 random_;
  Trouble trouble_;
  WaitLimits wait_limits_;
  Duration now_ = seconds(5);
  std::vector<std::unique_ptr<Member>> members_;
  int deaths_left_ = 0;
  std::map<std::pair<std::uint32_t, std::string>, std::set<int>> entered_;
  std::map<std::uint32_t, std::map<int, ShrinkDecision>> decided_;  // by turn, and by who has said so
};

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

void run_all(Trouble trouble, std::uint64_t usual = 1500) {
  const char* const one = std::getenv("SURVIVORS_SEED");
  const std::uint64_t first = number_of("SURVIVORS_SEED", 1);
  const std::uint64_t runs = one != nullptr ? 1 : number_of("SURVIVORS_RUNS", sanitized ? usual / 8 : usual);
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    World world(2 + static_cast<int>(seed % 7), seed, trouble);
    world.run();
    const std::string fault = world.fault();
    ASSERT_EQ(fault, "") << "SURVIVORS_SEED=" << seed << " repeats it";
  }
}

TEST(ShrinkConsensus, AgreeWithDeathsAtAnyTime) { run_all({}); }
TEST(ShrinkConsensus, AgreeAlsoWhenThoseThatHaveGoneOnEnd) { run_all({.leaves = true}); }
TEST(ShrinkConsensus, AgreeThatAPartCannotBeMade) { run_all({.fails = true, .leaves = true}); }
TEST(ShrinkConsensus, EndWhenOneStands) { run_all({.stops = true, .leaves = true}, 1000); }
TEST(ShrinkConsensus, NeverGoOnInTwoGroups) { run_all({.cuts = true, .leaves = true}, 1000); }
TEST(ShrinkConsensus, DecideOnceThoughSeveralLead) {
  run_all({.leaves = true, .hurries = true});
  run_all({.stops = true, .hurries = true});
  run_all({.cuts = true, .hurries = true});
}
TEST(ShrinkConsensus, NeverGoOnInTwoGroupsWithAllFaults) {
  run_all({.stops = true, .cuts = true, .fails = true, .leaves = true}, 1000);
}

}  // namespace
}  // namespace lockstep::test
