// SPDX-License-Identifier: Apache-2.0
// A world for engines in which nothing happens by itself: a clock that is set, and a network that delivers when it is
// told to, in an order drawn from a seed. Any number of members live in one thread, so a run can be repeated exactly.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {

class Network {
 public:
  Network(int size, std::uint64_t seed) : random_(seed), members_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(members_.size()); }
  Duration now() const { return now_; }
  void pass(Duration time) { now_ += time; }
  // Evenly one of 0 .. below - 1.
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned percent) { return draw(100) < percent; }

  // Lets some of what could happen now happen; says whether anything did.
  bool deliver();

  void post(int member, Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives);
  bool done(int member, int lane);
  void abandon(int member);
  void tell(int member, int peer, Bytes bytes) {
    auto& queue = words_[{member, peer}];
    const Duration before = queue.empty() ? Duration{} : queue.back().at;
    queue.push_back({std::max(before, now_ + delay()), std::move(bytes)});
  }
  std::optional<Transport::Heard> hear(int member);

 private:
  struct Word {
    Duration at;
    Bytes bytes;
  };
  struct Sent {
    Duration at;
    std::size_t bytes;
    const void* data;             // of one that waits for its receiver
    std::vector<std::byte> copy;  // of one that went at once
    bool waits;
    int lane;
  };
  struct Wanted {
    void* data;
    std::size_t bytes;
    int lane;
  };
  struct Pair {
    std::deque<Sent> sent;
    std::deque<Wanted> wanted;
  };
  struct Key {
    int source;
    int target;
    int channel;
    std::uint32_t mark;
    auto operator<=>(const Key&) const = default;
  };
  struct Member {
    std::map<int, int> left;  // messages of each lane
    std::string wrong;
  };

  Duration delay() {
    const std::uint64_t kind = draw(10);  // mostly quick, some late
    return std::chrono::microseconds(kind < 6 ? draw(20) : kind < 9 ? draw(500) : draw(20'000));
  }
  Member& member(int number) { return members_[static_cast<std::size_t>(number)]; }
  void meet(const Key& key, Pair& pair);

  std::mt19937_64 random_;
  Duration now_{};
  std::vector<Member> members_;
  std::map<Key, Pair> pairs_;
  std::map<std::pair<int, int>, std::deque<Word>> words_;
};

inline void Network::post(int number, Stamp stamp, std::span<const Outgoing> sends,
                          std::span<const Incoming> receives) {
  int& left = member(number).left[stamp.lane];
  if (left != 0) throw Error(Code::internal, text("lane ", stamp.lane, " has a round already"));
  const int channel = stamp.across ? -1 : stamp.lane;
  left = static_cast<int>(receives.size());
  for (const Incoming& each : receives)
    pairs_[{each.peer, number, channel, stamp.mark}].wanted.push_back({each.data, each.bytes, stamp.lane});
  for (const Outgoing& each : sends) {
    Sent sent{now_ + delay(), each.bytes, each.data, {}, chance(50), stamp.lane};
    if (sent.waits) {
      ++left;
    } else {
      const auto* from = static_cast<const std::byte*>(each.data);
      sent.copy.assign(from, from + each.bytes);
    }
    pairs_[{number, each.peer, channel, stamp.mark}].sent.push_back(std::move(sent));
  }
}

inline bool Network::done(int number, int lane) {
  if (!member(number).wrong.empty()) throw Error(Code::mismatch, member(number).wrong);
  return member(number).left[lane] == 0;
}

inline bool Network::deliver() {
  bool any = false;
  for (auto& [key, pair] : pairs_) {
    while (!pair.sent.empty() && !pair.wanted.empty() && pair.sent.front().at <= now_ && chance(60)) {
      meet(key, pair);
      any = true;
    }
  }
  return any;
}

inline void Network::meet(const Key& key, Pair& pair) {
  const Sent sent = std::move(pair.sent.front());
  const Wanted wanted = pair.wanted.front();
  pair.sent.pop_front();
  pair.wanted.pop_front();
  if (sent.bytes != wanted.bytes) {
    member(key.target).wrong = text("rank ", key.source, " sent ", sent.bytes, " bytes to rank ", key.target,
                                    ", which receives ", wanted.bytes);
    return;
  }
  std::memcpy(wanted.data, sent.waits ? sent.data : sent.copy.data(), sent.bytes);
  --member(key.target).left[wanted.lane];
  if (sent.waits) --member(key.source).left[sent.lane];
}

inline void Network::abandon(int number) {
  for (auto& [key, pair] : pairs_) {
    if (key.source == number) std::erase_if(pair.sent, [](const Sent& sent) { return sent.waits; });
    if (key.target == number) pair.wanted.clear();
  }
}

inline std::optional<Transport::Heard> Network::hear(int number) {
  for (int i = 0, first = static_cast<int>(draw(members_.size())); i < size(); ++i) {
    const int peer = (first + i) % size();
    const auto queue = words_.find({peer, number});
    if (queue == words_.end() || queue->second.empty() || queue->second.front().at > now_) continue;
    Transport::Heard heard{peer, std::move(queue->second.front().bytes)};
    queue->second.pop_front();
    return heard;
  }
  return std::nullopt;
}

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(Network& network, int rank) : network_(network), rank_(rank) {}
  ~SimulatedTransport() override { network_.abandon(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return network_.size(); }
  int lanes() const override { return 4; }
  std::uint32_t marks_across() const override { return 1U << 20U; }
  void post(Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    network_.post(rank_, stamp, sends, receives);
  }
  bool done(int lane) override { return network_.done(rank_, lane); }
  bool abandon() override {
    network_.abandon(rank_);
    return true;
  }
  void tell(int peer, Bytes bytes) override { network_.tell(rank_, peer, std::move(bytes)); }
  std::optional<Heard> hear() override { return network_.hear(rank_); }
  void sleep(std::int64_t) override {}

 private:
  Network& network_;
  int rank_;
};

// Tests drive engines by test() and progress() only: a wait would keep the one thread to itself.
class SimulatedWorld {
 public:
  SimulatedWorld(Network& network, int rank)
      : network_(&network), transport_(std::make_unique<SimulatedTransport>(network, rank)) {}
  Duration now() const { return network_->now(); }
  static constexpr bool moves_others = false;
  void idle(unsigned) { throw Error(Code::internal, "a wait in the simulated world"); }
  Transport& transport() { return *transport_; }

 private:
  Network* network_;
  std::unique_ptr<SimulatedTransport> transport_;
};

}  // namespace lockstep::test
