// SPDX-License-Identifier: Apache-2.0
// Splits rounds between the node's memory and the transport between nodes.
#include "collectives/engine/node_transport.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/node_messages.hpp"
#include "collectives/engine/round_rules.hpp"

namespace lockstep {
namespace {

// Serves one member. Control messages take the other transport.
class NodeTransport final : public ForwardingTransport {
 public:
  NodeTransport(std::unique_ptr<Transport> between_nodes, node::Room& room, std::vector<int> node_members)
      : ForwardingTransport(std::move(between_nodes)), room_(room), links_(static_cast<std::size_t>(size())) {
    for (std::size_t index = 0; index < node_members.size(); ++index) {
      const auto rank = static_cast<std::size_t>(node_members[index]);
      links_[rank] = std::make_unique<NodeLink>(room, static_cast<int>(index), node_members[index], this->rank());
    }
    is_one_node_ = node_members.size() == links_.size();
    lanes_.resize(static_cast<std::size_t>(lanes()));
  }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool try_send(int peer, std::uint32_t call_tag, const void* data, std::size_t bytes, bool is_exchanged) override;
  TryResult try_receive(int peer, std::uint32_t call_tag, void* data, std::size_t bytes) override;
  bool abandon() override;
  // The other transport may wait until all have been told.
  void send_control_to_all(const Bytes& bytes) override { to().send_control_to_all(bytes); }
  void sleep(std::int64_t nanoseconds) override;

 private:
  // Connects this member with another one of its node, or with itself.
  struct NodeLink {
    NodeLink(node::Room& room, int index, int peer, int own_rank)
        : sends(room, taken, index), receives(room, taken, index, peer, own_rank) {}
    node::TakenCells taken;
    NodeSends sends;
    NodeReceives receives;
  };
  struct NodeLane {
    RoundMessages left;
    std::vector<int> sources;
    std::vector<int> targets;
    bool is_posted_between_nodes = false;
  };

  static std::uint64_t key_of(int lane, std::uint32_t call_tag) {
    return std::uint64_t{static_cast<std::uint32_t>(lane)} << 32U | call_tag;
  }
  // Is the lane of the keys of point-to-point messages.
  static constexpr int message_lane = -1;

  NodeLink* link(int peer) { return links_[static_cast<std::size_t>(peer)].get(); }
  bool waits_in_node() const {
    return std::ranges::any_of(lanes_,
                               [](const NodeLane& lane) { return lane.left.sends_left + lane.left.receives_left > 0; });
  }
  bool waits_between_nodes() const { return std::ranges::any_of(lanes_, &NodeLane::is_posted_between_nodes); }
  void post_between_nodes(RoundTag round_tag, std::span<const SendDescriptor> sends,
                          std::span<const ReceiveDescriptor> receives);

  node::Room& room_;
  std::vector<std::unique_ptr<NodeLink>> links_;  // by rank; null for members of other nodes
  bool is_one_node_ = false;
  std::deque<NodeLane> lanes_;  // a deque keeps the addresses of RoundMessages
  std::vector<SendDescriptor> sends_between_nodes_;
  std::vector<ReceiveDescriptor> receives_between_nodes_;
  bool is_abandoned_ = false;
};

void NodeTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                         std::span<const ReceiveDescriptor> receives) {
  if (is_abandoned_) throw round_rules::transport_is_given_up();
  const auto number = static_cast<std::size_t>(round_tag.lane);
  if (number >= lanes_.size()) lanes_.resize(number + 1);
  NodeLane& lane = lanes_[number];
  const std::uint64_t key = key_of(round_tag.is_message ? message_lane : round_tag.lane, round_tag.call_tag);
  lane.sources.clear();
  lane.targets.clear();
  for (const ReceiveDescriptor& each : receives) {
    NodeLink* const from = link(each.peer);
    if (from == nullptr) continue;
    from->receives.receive(key, static_cast<std::byte*>(each.data), each.bytes, lane.left);
    lane.sources.push_back(each.peer);
  }
  for (const SendDescriptor& each : sends) {
    NodeLink* const to = link(each.peer);
    if (to == nullptr) continue;
    to->sends.send(key, static_cast<const std::byte*>(each.data), each.bytes, lane.left);
    lane.targets.push_back(each.peer);
  }
  if (!lane.targets.empty()) room_.memory().header().wake_all();
  if (!is_one_node_) post_between_nodes(round_tag, sends, receives);
}

void NodeTransport::post_between_nodes(RoundTag round_tag, std::span<const SendDescriptor> sends,
                                       std::span<const ReceiveDescriptor> receives) {
  sends_between_nodes_.clear();
  receives_between_nodes_.clear();
  std::ranges::copy_if(sends, std::back_inserter(sends_between_nodes_),
                       [&](const SendDescriptor& each) { return link(each.peer) == nullptr; });
  std::ranges::copy_if(receives, std::back_inserter(receives_between_nodes_),
                       [&](const ReceiveDescriptor& each) { return link(each.peer) == nullptr; });
  if (sends_between_nodes_.empty() && receives_between_nodes_.empty()) return;
  lanes_[static_cast<std::size_t>(round_tag.lane)].is_posted_between_nodes = true;
  to().post(round_tag, sends_between_nodes_, receives_between_nodes_);
}

bool NodeTransport::done(int number) {
  NodeLane& lane = lanes_[static_cast<std::size_t>(number)];
  if (lane.is_posted_between_nodes && to().done(number)) lane.is_posted_between_nodes = false;
  bool moved = false;
  if (lane.left.sends_left > 0) {
    for (const int peer : lane.targets) {
      if (!link(peer)->sends.is_idle()) moved |= link(peer)->sends.advance();
    }
  }
  if (lane.left.receives_left > 0) {
    for (const int peer : lane.sources) {
      if (!link(peer)->receives.is_idle()) moved |= link(peer)->receives.advance();
    }
  }
  if (moved) room_.memory().header().wake_all();
  return lane.left.sends_left + lane.left.receives_left == 0 && !lane.is_posted_between_nodes;
}

bool NodeTransport::try_send(int peer, std::uint32_t call_tag, const void* data, std::size_t bytes, bool is_exchanged) {
  NodeLink* const to = link(peer);
  if (to == nullptr || is_abandoned_ ||
      !to->sends.try_copy(key_of(message_lane, call_tag), static_cast<const std::byte*>(data), bytes, is_exchanged))
    return false;
  room_.memory().header().wake_all();
  return true;
}

TryResult NodeTransport::try_receive(int peer, std::uint32_t call_tag, void* data, std::size_t bytes) {
  NodeLink* const from = link(peer);
  if (from == nullptr || is_abandoned_) return TryResult::needs_lane;
  return from->receives.try_take(key_of(message_lane, call_tag), static_cast<std::byte*>(data), bytes);
}

// The engine has given up the room before, so that no other member reads this one's memory any more.
bool NodeTransport::abandon() {
  is_abandoned_ = true;
  for (const auto& each : links_) {
    if (each == nullptr) continue;
    each->sends.abandon();
    each->receives.abandon();
  }
  for (NodeLane& lane : lanes_) lane = NodeLane{};
  return to().abandon();
}

// News from other nodes do not end a sleep in the room, so that sleep is short if both may come. It is never long,
// because a member that sends at the very moment may not see the sleeper.
void NodeTransport::sleep(std::int64_t nanoseconds) {
  constexpr std::int64_t soon = 50'000;        // a guess
  constexpr std::int64_t longest = 1'000'000;  // a guess
  if (!waits_in_node()) return to().sleep(nanoseconds);
  room_.sleeper().sleep(std::min(nanoseconds, waits_between_nodes() ? soon : longest));
}

}  // namespace

std::unique_ptr<Transport> node_transport(std::unique_ptr<Transport> between_nodes, node::Room& room,
                                          std::vector<int> node_members) {
  return std::make_unique<NodeTransport>(std::move(between_nodes), room, std::move(node_members));
}

}  // namespace lockstep
