// SPDX-License-Identifier: Apache-2.0
// Provides the Platform of an engine for a simulated member: the network's clock and messages, and perhaps the room of
// its node. Callers drive such engines by start(), test() and progress(). A wait would block the only thread.
#pragma once

#include <memory>

#include "collectives/engine/checked_transport.hpp"
#include "collectives/node/node_collective.hpp"
#include "collectives/simulated/simulated_network.hpp"
#include "topology/base/error.hpp"

namespace lockstep::simulated {

// Passes a member's calls to the network, which must outlive it.
class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, int rank) : network_(network), rank_(rank) {}
  ~SimulatedTransport() override { network_.abandon(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return network_.size(); }
  int lanes() const override { return 4; }
  std::uint32_t message_tags() const override { return 1U << 20U; }
  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override {
    network_.post(rank_, round_tag, sends, receives);
  }
  bool done(int lane) override { return network_.done(rank_, lane); }
  bool abandon() override {
    network_.abandon(rank_);
    return true;
  }
  void send_control(int peer, Bytes bytes) override { network_.send_control(rank_, peer, std::move(bytes)); }
  std::optional<ReceivedControl> receive_control() override { return network_.receive_control(rank_); }
  void sleep(std::int64_t) override {}

 private:
  SimulatedNetwork& network_;
  int rank_;
};

// Implements the Platform that Engine describes, without waiting.
class SimulatedPlatform {
 public:
  // Makes the platform of one rank. The network must outlive it. `room` may be null. If `checksums` is true, all
  // messages carry checksums.
  SimulatedPlatform(SimulatedNetwork& network, int rank, std::unique_ptr<node::Room> room = nullptr,
                    bool checksums = false)
      : network_(&network), transport_(std::make_unique<SimulatedTransport>(network, rank)), room_(std::move(room)) {
    if (checksums) transport_ = checked_transport(std::move(transport_));
  }

  static constexpr bool runs_progress_hooks = false;
  Duration now() const { return network_->now(); }
  // Throws Error internal, since no caller may wait here.
  void idle(unsigned) { throw Error(Code::internal, "a wait in the simulated world"); }
  Transport& transport() { return *transport_; }
  node::Room* room() { return room_.get(); }
  const node::PollLimits& poll_limits() const { return poll_limits_; }

 private:
  SimulatedNetwork* network_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<node::Room> room_;
  node::PollLimits poll_limits_ = {};
};

}  // namespace lockstep::simulated
