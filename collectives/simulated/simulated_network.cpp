// SPDX-License-Identifier: Apache-2.0
// Implements the simulated network as a queue of events in the order of time. Events at the same time run in the order
// of their creation.
#include "collectives/simulated/simulated_network.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "collectives/engine/round_rules.hpp"
#include "topology/base/error.hpp"

namespace lockstep::simulated {
namespace {

// Bounds the packets of a message. The numbers here are guesses.
constexpr std::size_t most_packets = 16;
constexpr std::size_t most_packets_of_many = 4;  // with more members than this:
constexpr std::size_t many_members = 4096;
constexpr std::size_t least_packet = 4096;
constexpr std::size_t word_bytes = 64;
// The sender's round keeps messages of more bytes until they are on their way.
constexpr std::size_t kept_bytes = 65536;

}  // namespace

SimulatedNetwork::SimulatedNetwork(int size, std::uint64_t seed, const FabricShape* fabric, bool has_data)
    : random_(seed), has_data_(has_data), members_(static_cast<std::size_t>(size)) {
  if (fabric != nullptr) fabric_.emplace(*fabric);
}

std::optional<Duration> SimulatedNetwork::next() const {
  if (events_.empty()) return std::nullopt;
  return std::max(now_, events_.top().at);
}

void SimulatedNetwork::work(int number, Duration busy_time) {
  SimulatedMember& one = member(number);
  one.free = std::max(one.free, now_) + busy_time;
}

// Draws a delay: under 20 us for 60 %, under 500 us for 30 %, under 20 ms for 10 %. The numbers are guesses.
Duration SimulatedNetwork::drawn() {
  const std::uint64_t kind = draw(10);
  return std::chrono::microseconds(kind < 6 ? draw(20) : kind < 9 ? draw(500) : draw(20'000));
}

void SimulatedNetwork::add(NetworkEvent event) {
  event.order = ++order_;
  events_.push(std::move(event));
}

void SimulatedNetwork::wake(int number) {
  if (std::exchange(member(number).is_woken, true)) return;
  woken_.push_back(number);
}

std::vector<int> SimulatedNetwork::take_woken() {
  for (const int each : woken_) member(each).is_woken = false;
  return std::exchange(woken_, {});
}

void SimulatedNetwork::post(int number, RoundTag round_tag, std::span<const SendDescriptor> sends,
                            std::span<const ReceiveDescriptor> receives) {
  int& left = member(number).left[round_tag.lane];
  if (left != 0) throw round_rules::lane_is_busy(round_tag.lane);
  const int channel = round_tag.is_message ? -1 : round_tag.lane;
  left = static_cast<int>(receives.size());
  for (const ReceiveDescriptor& each : receives) {
    const auto pair = pairs_.try_emplace({each.peer, number, channel, round_tag.call_tag}).first;
    pair->second.wanted.push_back({each.data, each.bytes, round_tag.lane});
    meet(pair);  // may erase the pair
  }
  for (const SendDescriptor& each : sends) {
    auto sent = std::make_shared<SentMessage>();
    sent->bytes = each.bytes;
    const bool flips = each.bytes > 0 && std::exchange(member(number).flips, false);
    sent->waits = !fabric_ && chance(50) && !flips;
    sent->lane = round_tag.lane;
    if (fabric_ && each.bytes > kept_bytes) ++left;
    if (sent->waits) {
      sent->data = each.data;
      ++left;
    } else if (each.bytes > 0 && has_data_) {
      const auto* from = static_cast<const std::byte*>(each.data);
      sent->copy.assign(from, from + each.bytes);
      if (flips) sent->copy[draw(each.bytes)] ^= std::byte{1} << static_cast<unsigned>(draw(8));
    }
    const auto pair = pairs_.try_emplace({number, each.peer, channel, round_tag.call_tag}).first;
    pair->second.sent.push_back(sent);
    ++messages_;
    if (fabric_) work(number, of_us(fabric_->shape().message_us));
    send(pair, std::move(sent), free_at(number));
  }
}

void SimulatedNetwork::send(std::map<ChannelKey, MessageQueues>::iterator pair, std::shared_ptr<SentMessage> sent,
                            Duration at) {
  auto travel = std::make_shared<MessageTransfer>();
  travel->pair = pair;
  travel->left = travel->coming = sent->bytes;
  const int source = travel->source = pair->first.source;
  if (!fabric_) {
    travel->sent = std::move(sent);
    add({.at = at + drawn(), .order = 0, .kind = NetworkEventKind::arrival, .bytes = travel->coming, .travel = travel});
    return;
  }
  if (!fabric_->are_on_one_node(source, pair->first.target)) network_bytes_ += sent->bytes;
  travel->is_held = sent->bytes > kept_bytes;
  travel->abandoned = member(source).abandoned;
  const std::size_t packets = members_.size() > many_members ? most_packets_of_many : most_packets;
  travel->packet = std::max(least_packet, (sent->bytes + packets - 1) / packets);
  travel->path = fabric_->path(source, pair->first.target);
  travel->sent = std::move(sent);
  LinkQueue& first = sources_[travel->path.front()];
  const std::pair<int, int> connection{source, pair->first.target};
  auto& messages = first.connections[connection];
  if (messages.empty()) first.turns.push_back(connection);
  messages.push_back(travel);
  if (std::exchange(first.is_due, true)) return;
  const Duration due = std::max(at, fabric_->free_at(travel->path.front()));
  add({.at = due, .order = 0, .kind = NetworkEventKind::source, .link = travel->path.front(), .travel = nullptr});
}

// Sends a packet of the next connection in turn, since the first link of its path is free.
void SimulatedNetwork::serve(int link) {
  LinkQueue& source = sources_[link];
  source.is_due = false;
  if (source.turns.empty()) return;
  const std::pair<int, int> connection = source.turns.front();
  source.turns.pop_front();
  auto& messages = source.connections[connection];
  const std::shared_ptr<MessageTransfer> travel = messages.front();
  const std::size_t bytes = std::min(travel->packet, travel->left);
  travel->left -= bytes;
  const Fabric::PacketTiming passing = fabric_->pass(link, bytes, now_, now_);
  add({.at = passing.head,
       .order = 0,
       .kind = NetworkEventKind::packet,
       .hop = 1,
       .bytes = bytes,
       .tail = passing.tail,
       .travel = travel});
  if (travel->left == 0) {
    messages.pop_front();
    if (travel->is_held)
      add({.at = fabric_->free_at(link), .order = 0, .kind = NetworkEventKind::gone, .travel = travel});
  }
  if (messages.empty())
    source.connections.erase(connection);
  else
    source.turns.push_back(connection);
  if (source.turns.empty()) return;
  source.is_due = true;
  add({.at = fabric_->free_at(link), .order = 0, .kind = NetworkEventKind::source, .link = link, .travel = nullptr});
}

void SimulatedNetwork::carry(const NetworkEvent& event) {
  NetworkEvent next = event;
  if (event.hop < event.travel->path.size()) {
    const Fabric::PacketTiming passing =
        fabric_->pass(event.travel->path[event.hop], event.bytes, event.at, event.tail);
    next.at = passing.head;
    next.tail = passing.tail;
    ++next.hop;
  } else {
    next.at = event.tail;
    next.kind = NetworkEventKind::arrival;
  }
  add(std::move(next));
}

void SimulatedNetwork::leave(const MessageTransfer& travel) {
  SimulatedMember& source = member(travel.source);
  if (source.abandoned != travel.abandoned) return;
  --source.left[travel.sent->lane];
  wake(travel.source);
}

void SimulatedNetwork::arrive(const NetworkEvent& event) {
  MessageTransfer& travel = *event.travel;
  travel.coming -= event.bytes;
  if (travel.coming > 0) return;
  travel.sent->has_come = true;
  meet(travel.pair);
}

void SimulatedNetwork::deliver() {
  while (!events_.empty() && events_.top().at <= now_) {
    const NetworkEvent event = events_.top();
    events_.pop();
    switch (event.kind) {
      case NetworkEventKind::source:
        serve(event.link);
        break;
      case NetworkEventKind::packet:
        carry(event);
        break;
      case NetworkEventKind::gone:
        leave(*event.travel);
        break;
      case NetworkEventKind::arrival:
        arrive(event);
        break;
      case NetworkEventKind::taken:
        take(*event.taking);
        break;
      case NetworkEventKind::word:
        wake(event.link);
        break;
    }
  }
}

// Matches messages with receives in the order of their posting, for either order of arrival.
void SimulatedNetwork::meet(std::map<ChannelKey, MessageQueues>::iterator at) {
  MessageQueues& pair = at->second;
  const ChannelKey& key = at->first;
  while (!pair.sent.empty() && !pair.wanted.empty() && pair.sent.front()->has_come) {
    const std::shared_ptr<SentMessage> sent = pair.sent.front();
    const PendingReceive wanted = pair.wanted.front();
    pair.sent.pop_front();
    pair.wanted.pop_front();
    if (sent->given_up) {
      pair.wanted.push_front(wanted);
      continue;
    }
    const Delivery taking{key.source, key.target, sent, wanted, member(key.target).abandoned};
    if (!fabric_) {
      take(taking);
      continue;
    }
    const FabricShape& shape = fabric_->shape();
    const double rate =
        fabric_->are_on_one_node(key.source, key.target) ? shape.memory_bytes_per_us : shape.received_bytes_per_us;
    const double moves = rate > 0 ? static_cast<double>(sent->bytes) / rate : 0;
    work(key.target, of_us(shape.message_us + moves));
    add({.at = free_at(key.target),
         .order = 0,
         .kind = NetworkEventKind::taken,
         .travel = nullptr,
         .taking = std::make_shared<Delivery>(taking)});
  }
  if (pair.sent.empty() && pair.wanted.empty()) pairs_.erase(at);
}

void SimulatedNetwork::take(const Delivery& taking) {
  SimulatedMember& target = member(taking.target);
  const SentMessage& sent = *taking.sent;
  const PendingReceive& wanted = taking.wanted;
  if (target.abandoned != taking.abandoned) return;
  if (sent.bytes != wanted.bytes) {
    target.wrong = round_rules::length_mismatch(taking.source, sent.bytes, taking.target, wanted.bytes);
  } else {
    if (sent.bytes > 0 && has_data_) std::memcpy(wanted.data, sent.waits ? sent.data : sent.copy.data(), sent.bytes);
    --target.left[wanted.lane];
    if (sent.waits) --member(taking.source).left[sent.lane];
  }
  if (sent.waits) wake(taking.source);
  wake(taking.target);
}

bool SimulatedNetwork::done(int number, int lane) {
  if (!member(number).wrong.empty()) throw Error(Code::mismatch, member(number).wrong);
  return member(number).left[lane] == 0;
}

// Calls back messages that wait, and all messages sent after them. So none of these takes the place of another message.
void SimulatedNetwork::abandon(int number) {
  ++member(number).abandoned;
  for (auto& [key, pair] : pairs_) {
    if (key.source == number) {
      bool is_over = false;
      for (const auto& sent : pair.sent) sent->given_up = is_over = is_over || sent->waits;
    }
    if (key.target == number) pair.wanted.clear();
  }
}

void SimulatedNetwork::send_control(int number, int peer, Bytes bytes) {
  if (is_closed_) return;
  auto& queue = member(peer).words[number];
  const Duration before = queue.empty() ? Duration{} : queue.back().at;
  Duration busy_time = {};
  if (fabric_) {
    const FabricShape& shape = fabric_->shape();
    const auto links = static_cast<double>(fabric_->path(number, peer).size());
    const bool is_on_node = fabric_->are_on_one_node(number, peer);
    busy_time = of_us(links * (is_on_node ? shape.memory_us : shape.network_us) + 2 * shape.message_us +
                      static_cast<double>(word_bytes) / shape.network_bytes_per_us);
    work(number, of_us(shape.message_us));
  } else {
    busy_time = drawn();
  }
  const Duration at = std::max(before, now_ + busy_time);
  queue.push_back({at, std::move(bytes)});
  add({.at = at, .order = 0, .kind = NetworkEventKind::word, .link = peer, .travel = nullptr});
}

// Takes the message from a random one of the senders that have sent something.
std::optional<Transport::ReceivedControl> SimulatedNetwork::receive_control(int number) {
  auto& words = member(number).words;
  if (words.empty()) return std::nullopt;
  auto first = words.begin();
  std::advance(first, static_cast<std::ptrdiff_t>(draw(words.size())));
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto& [peer, queue] = *first;
    if (!queue.empty() && queue.front().at <= now_) {
      Transport::ReceivedControl heard{peer, std::move(queue.front().bytes)};
      queue.pop_front();
      if (queue.empty()) words.erase(first);
      return heard;
    }
    if (++first == words.end()) first = words.begin();
  }
  return std::nullopt;
}

}  // namespace lockstep::simulated
