// SPDX-License-Identifier: Apache-2.0
// The world of an engine whose member does not exist: the network's clock and messages, and perhaps the room of its
// node. Engines are driven by start(), test() and progress(): a wait would keep the one thread to itself.
#pragma once

#include <memory>

#include "collectives/engine/checked_transport.hpp"
#include "collectives/node/work.hpp"
#include "collectives/simulated/network.hpp"
#include "topology/base/error.hpp"

namespace lockstep::simulated {

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

class World {
 public:
  World(Network& network, int rank, std::unique_ptr<node::Room> room = nullptr, bool checksums = false)
      : network_(&network), transport_(std::make_unique<SimulatedTransport>(network, rank)), room_(std::move(room)) {
    if (checksums) transport_ = checked_transport(std::move(transport_));
  }

  static constexpr bool moves_others = false;
  Duration now() const { return network_->now(); }
  void idle(unsigned) { throw Error(Code::internal, "a wait in the simulated world"); }
  Transport& transport() { return *transport_; }
  node::Room* room() { return room_.get(); }
  const node::Looks& looks() const { return looks_; }

 private:
  Network* network_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<node::Room> room_;
  node::Looks looks_ = {};
};

}  // namespace lockstep::simulated
