// SPDX-License-Identifier: Apache-2.0
// Measures latency and bandwidth of pairs, alone and in disjoint rounds, and measures again if a link seems slow.
#include "bench/pairs.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "bench/measure.hpp"

namespace lockstep::bench {
namespace {

// Holds the data that a member sends and receives in all its pairs.
struct PairMemory {
  std::vector<std::byte> from = std::vector<std::byte>(std::size_t{4} << 20U, std::byte{1});
  std::vector<std::byte> to = std::vector<std::byte>(from.size());
};

// Measures one pair. The first of the two members keeps the time, and tells the other the number of repetitions.
class PairMeasurement {
 public:
  PairMeasurement(Communicator& world, PairMemory& memory, int peer, bool first, double seconds)
      : world_(world), memory_(memory), peer_(peer), first_(first), wanted_us_(seconds * 1e6) {}

  double latency() {
    std::array<std::byte, 8> word = {};
    const auto bounce = [&] {
      if (first_) world_.send(word, peer_);
      world_.recv(word, peer_);
      if (!first_) world_.send(word, peer_);
    };
    double best = 1e18;
    repeat([&] {
      const double begin = now_us();
      bounce();
      best = std::min(best, (now_us() - begin) / 2);
    });
    return best;
  }
  double there() { return one_way(first_); }
  double back() { return one_way(!first_); }
  double both() {
    double best = 0;
    repeat([&] {
      best = std::max(
          best, rate(2 * memory_.from.size(), timed([&] { world_.sendrecv(memory_.from, peer_, memory_.to, peer_); })));
    });
    return best;
  }

 private:
  static double rate(std::size_t moved, double us) { return us > 0 ? static_cast<double>(moved) / us / 1e3 : 0; }

  // Repeats the work at least three times, and until its time is over. The first member decides.
  template <class Work>
  void repeat(const Work& work) {
    const double begin = now_us();
    std::byte more{1};
    for (int times = 1; more != std::byte{0}; ++times) {
      work();
      constexpr int least = 3;
      if (times < least) continue;
      more = std::byte(now_us() - begin < wanted_us_ ? 1 : 0);
      if (first_)
        world_.send(std::span(&more, 1), peer_);
      else
        world_.recv(std::span(&more, 1), peer_);
    }
  }

  // Times the work from a common start until both members have confirmed its end.
  template <class Work>
  double timed(const Work& work) {
    std::byte word{};
    const std::span one(&word, 1);
    world_.sendrecv(one, peer_, one_, peer_);
    const double begin = now_us();
    work();
    world_.sendrecv(one, peer_, one_, peer_);
    return now_us() - begin;
  }

  double one_way(bool mine) {
    double best = 0;
    repeat([&] {
      best = std::max(best, rate(memory_.from.size(), timed([&] {
                                   if (mine)
                                     world_.send(memory_.from, peer_);
                                   else
                                     world_.recv(memory_.to, peer_);
                                 })));
    });
    return best;
  }

  Communicator& world_;
  PairMemory& memory_;
  int peer_;
  bool first_;
  double wanted_us_;
  std::array<std::byte, 1> one_ = {};
};

std::string kind_of(Link link) {
  std::string words(to_string(link));
  std::ranges::replace(words, ' ', '_');
  return words;
}

// The members of a pair measure it; afterwards all members know the values.
constexpr std::size_t kept = 5;

class LinkMeasurement {
 public:
  LinkMeasurement(Communicator& world, const PairEffort& effort, std::vector<PairLink>& links,
                  const std::function<void(std::size_t, std::size_t)>& progress)
      : world_(world), effort_(effort), links_(links), progress_(progress) {
    find_pairs();
    done_of_ = rounds_.size() + (links_.size() <= effort_.most_alone ? links_.size() : 0);
  }

  LinkVerdict run(const LinkBounds& bounds) {
    together();
    std::vector<std::size_t> all(links_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    if (links_.size() <= effort_.most_alone) alone(all);
    LinkVerdict verdict = judge_links(links_, bounds);
    for (int look = 1; look < effort_.looks_at_single; ++look) {
      std::vector<std::size_t> doubtful;
      for (const std::size_t i : all) {
        if (links_[i].slow && (look < effort_.looks || !is_explained(links_[i]))) doubtful.push_back(i);
      }
      if (doubtful.empty() || doubtful.size() > effort_.most_alone) break;
      seconds_ *= 2;
      alone(doubtful);
      verdict = judge_links(links_, bounds);
    }
    return verdict;
  }

 private:
  void find_pairs() {
    const Topology& topology = world_.topology();
    const auto rank = [&](int index) { return world_.ranks()[static_cast<std::size_t>(index)]; };
    std::map<int, std::vector<int>> nodes;
    for (int index = 0; index < world_.size(); ++index) nodes[topology.member(rank(index)).node].push_back(index);
    std::vector<int> leaders;
    std::vector<std::vector<std::vector<std::pair<int, int>>>> sets;
    for (const auto& [node, members] : nodes) {
      leaders.push_back(members.front());
      sets.push_back(rounds_of(members));
    }
    sets.push_back(rounds_of(leaders));
    // Nodes are independent, so their rounds run at the same time. The rounds between nodes come afterwards.
    const std::size_t most =
        std::ranges::max_element(sets.begin(), sets.end() - 1, {}, [](const auto& set) { return set.size(); })->size();
    for (std::size_t i = 0; i < most; ++i) {
      rounds_.emplace_back();
      for (auto set = sets.begin(); set != sets.end() - 1; ++set) {
        if (i < set->size()) rounds_.back().insert(rounds_.back().end(), (*set)[i].begin(), (*set)[i].end());
      }
    }
    for (const auto& round : sets.back()) rounds_.push_back(round);
    for (const auto& round : rounds_) {
      for (const auto& [a, b] : round) {
        place_[{a, b}] = links_.size();
        links_.push_back({.a = a, .b = b, .kind = kind_of(topology.link(rank(a), rank(b)))});
      }
    }
  }

  // The two members of a pair measure it; the others go on and wait for them.
  void together() {
    std::vector<double> found(kept * links_.size(), 0);
    const bool only = links_.size() > effort_.most_alone;
    for (const auto& round : rounds_) {
      step();
      for (const auto& [a, b] : round) {
        if (world_.rank() != a && world_.rank() != b) continue;
        PairMeasurement pair(world_, memory_, world_.rank() == a ? b : a, world_.rank() == a, seconds_);
        double* const mine = &found[kept * place_.at({a, b})];
        if (only) measure_all(pair, mine);
        mine[4] = pair.both();
      }
    }
    world_.all_reduce(found, max);
    take(found);
  }

  void alone(const std::vector<std::size_t>& which) {
    std::vector<double> found(kept * links_.size(), 0);
    for (const std::size_t i : which) {
      step();
      const PairLink& link = links_[i];
      if (world_.rank() != link.a && world_.rank() != link.b) continue;
      PairMeasurement pair(world_, memory_, world_.rank() == link.a ? link.b : link.a, world_.rank() == link.a,
                           seconds_);
      measure_all(pair, &found[kept * i]);
    }
    world_.all_reduce(found, max);
    take(found);
  }

  // The latency is stored as its inverse, so that the largest value is always the best.
  static void measure_all(PairMeasurement& pair, double* mine) {
    mine[0] = 1 / std::max(pair.latency(), 1e-3);
    mine[1] = pair.there();
    mine[2] = pair.back();
    mine[3] = pair.both();
  }

  void take(const std::vector<double>& found) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      PairLink& link = links_[i];
      const double* const here = &found[kept * i];
      if (here[0] > 0) link.latency_us = link.latency_us > 0 ? std::min(link.latency_us, 1 / here[0]) : 1 / here[0];
      link.there = std::max(link.there, here[1]);
      link.back = std::max(link.back, here[2]);
      link.both = std::max(link.both, here[3]);
      link.together = std::max(link.together, here[4]);
    }
  }

  // Lets all members begin the next measurement together.
  void step() {
    world_.barrier();
    progress_(std::min(done_, done_of_), done_of_);
    ++done_;
  }

  Communicator& world_;
  const PairEffort& effort_;
  std::vector<PairLink>& links_;
  const std::function<void(std::size_t, std::size_t)>& progress_;
  std::vector<std::vector<std::pair<int, int>>> rounds_;
  std::map<std::pair<int, int>, std::size_t> place_;
  PairMemory memory_;
  double seconds_ = effort_.seconds;
  std::size_t done_ = 0;
  std::size_t done_of_ = 0;
};

}  // namespace

// Uses the circle method: one member stays, and the others move around it.
std::vector<std::vector<std::pair<int, int>>> rounds_of(const std::vector<int>& members) {
  if (members.size() < 2) return {};
  std::vector<int> circle = members;
  if (circle.size() % 2 == 1) circle.push_back(-1);  // the partner of -1 rests
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (std::size_t round = 0; round + 1 < circle.size(); ++round) {
    rounds.emplace_back();
    for (std::size_t i = 0; i < circle.size() / 2; ++i) {
      const int a = circle[i];
      const int b = circle[circle.size() - 1 - i];
      if (a >= 0 && b >= 0) rounds.back().emplace_back(std::min(a, b), std::max(a, b));
    }
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

LinkVerdict measure_links(Communicator& world, const PairEffort& effort, const LinkBounds& bounds,
                          std::vector<PairLink>& links, const std::function<void(std::size_t, std::size_t)>& progress) {
  return LinkMeasurement(world, effort, links, progress).run(bounds);
}

}  // namespace lockstep::bench
