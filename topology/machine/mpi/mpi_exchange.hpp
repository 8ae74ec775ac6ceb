// SPDX-License-Identifier: Apache-2.0
// An exchange over MPI's point-to-point messages: up a binomial tree and down again, 2 log n steps.
// When somebody does not come, those who wait find out who, exactly, and all say the same.
#pragma once

#include "topology/exchange.hpp"
#include "topology/machine/mpi/wire.hpp"

namespace lockstep {

// Tags of its own on the wire, and the how-manieth to have them.
struct Lane {
  int channel = 0;
  std::uint32_t generation = 0;
};

class MpiExchange final : public Exchange {
 public:
  // `ranks` are the members' ranks on the wire, in the order of this exchange.
  MpiExchange(std::shared_ptr<Wire> wire, Lane lane, std::vector<int> ranks, Patience patience, Log log);
  ~MpiExchange() override;

  // For a transport of data over the same channel.
  const std::shared_ptr<Wire>& wire() const { return wire_; }
  int channel() const { return channel_; }
  const std::vector<int>& ranks() const { return ranks_; }
  std::uint32_t generation() const { return static_cast<std::uint32_t>(sequence_ >> 32U); }
  static constexpr int word_kind = 5;  // its small messages; ours are below
  // Late messages may come on this channel: nobody else may have it after us.
  void keep_channel() { failed_ = true; }

 private:
  class Call;
  enum Kind : std::uint8_t { up, down, question, answer, verdict };

  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine, Patience patience) override;
  void tell_failure(std::string_view why) override;
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) override;
  Bytes channels_in_use() override;
  std::unique_lock<std::mutex> try_choosing() override { return std::unique_lock(wire_->choosing(), std::try_to_lock); }

  void send(int to, Kind kind, Bytes bytes);
  std::optional<Wire::Arrived> try_receive(int from, Kind kind);  // the source is a rank of this exchange

  std::shared_ptr<Wire> wire_;
  int channel_;
  std::vector<int> ranks_;
  std::uint64_t sequence_;  // of the call; the upper half is the generation
  bool failed_ = false;
};

}  // namespace lockstep
