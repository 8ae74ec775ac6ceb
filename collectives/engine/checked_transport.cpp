// SPDX-License-Identifier: Apache-2.0
// Implements checksums: each message is followed by another one with its checksum, and control messages carry theirs at
// the end.
#include "collectives/engine/checked_transport.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "collectives/engine/forwarding_transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::string_view corruption_remedy =
    "check the memory and the network of both hosts: their messages arrive damaged";

// Mixes a word into a state. Different words give different results for one state, and different states for one word.
std::uint64_t next_state(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * 0x9fb21c651e98df25U;
  return state ^ state >> 35U;
}

// Sends a second message with a checksum after each message.
class CheckedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  void send_control(int peer, Bytes bytes) override;
  std::optional<ReceivedControl> receive_control() override;
  void send_control_to_all(const Bytes& bytes) override { to().send_control_to_all(sealed(bytes)); }
  void leave(const Bytes& leave_message) override {
    to().leave(leave_message.empty() ? leave_message : sealed(leave_message));
  }

 private:
  // Holds the round under way on a lane.
  struct CheckedRound {
    // Holds the checksums of the messages sent, then of those received.
    std::vector<std::uint64_t> sums;
    std::vector<ReceiveDescriptor> receives;
    std::vector<SendDescriptor> all_sends;
    std::vector<ReceiveDescriptor> all_receives;
    bool is_checked = true;
  };
  static Bytes sealed(Bytes bytes);

  // Holds the rounds by lane.
  std::deque<CheckedRound> rounds_;
};

void CheckedTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                            std::span<const ReceiveDescriptor> receives) {
  while (static_cast<std::size_t>(round_tag.lane) >= rounds_.size()) rounds_.emplace_back();
  CheckedRound& round = rounds_[static_cast<std::size_t>(round_tag.lane)];
  round.sums.assign(sends.size() + receives.size(), 0);
  round.receives.assign(receives.begin(), receives.end());
  round.all_sends.clear();
  round.all_receives.clear();
  std::size_t next = 0;
  for (const SendDescriptor& each : sends) {
    std::uint64_t& sum = round.sums[next++];
    sum = checksum({static_cast<const std::byte*>(each.data), each.bytes});
    round.all_sends.push_back(each);
    round.all_sends.push_back({each.peer, &sum, sizeof sum});
  }
  for (const ReceiveDescriptor& each : receives) {
    round.all_receives.push_back(each);
    round.all_receives.push_back({each.peer, &round.sums[next++], sizeof(std::uint64_t)});
  }
  round.is_checked = false;
  to().post(round_tag, round.all_sends, round.all_receives);
}

bool CheckedTransport::done(int lane) {
  if (!to().done(lane)) return false;
  CheckedRound& round = rounds_[static_cast<std::size_t>(lane)];
  if (std::exchange(round.is_checked, true)) return true;
  std::size_t next = round.sums.size() - round.receives.size();
  for (const ReceiveDescriptor& each : round.receives) {
    if (checksum({static_cast<const std::byte*>(each.data), each.bytes}) == round.sums[next++]) continue;
    throw Error(Code::corrupt, text(each.bytes, " bytes from rank ", each.peer, " to rank ", rank()),
                corruption_remedy);
  }
  return true;
}

Bytes CheckedTransport::sealed(Bytes bytes) {
  const auto sum = std::bit_cast<std::array<std::byte, sizeof(std::uint64_t)>>(checksum(bytes));
  bytes.insert(bytes.end(), sum.begin(), sum.end());
  return bytes;
}

void CheckedTransport::send_control(int peer, Bytes bytes) { to().send_control(peer, sealed(std::move(bytes))); }

std::optional<Transport::ReceivedControl> CheckedTransport::receive_control() {
  std::optional<ReceivedControl> heard = to().receive_control();
  if (!heard) return heard;
  std::uint64_t sum = 0;
  const std::size_t bytes = heard->bytes.size() - std::min(heard->bytes.size(), sizeof sum);
  std::memcpy(&sum, heard->bytes.data() + bytes, heard->bytes.size() - bytes);
  heard->bytes.resize(bytes);
  if (checksum(heard->bytes) != sum)
    throw Error(Code::corrupt, text("a word of ", bytes, " bytes from rank ", heard->peer, " to rank ", rank()),
                corruption_remedy);
  return heard;
}

}  // namespace

// Four independent states let the processor overlap their steps.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr std::size_t lanes = 4;
  constexpr std::size_t word = sizeof(std::uint64_t);
  std::array<std::uint64_t, lanes> states = {1, 2, 3, 4};
  std::size_t at = 0;
  const auto word_at = [&](std::size_t offset, std::size_t length) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, length);
    return value;
  };
  for (; at + lanes * word <= bytes.size(); at += lanes * word) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      states[lane] = next_state(states[lane], word_at(at + lane * word, word));
  }
  for (; at < bytes.size(); at += word)
    states[0] = next_state(states[0], word_at(at, std::min(word, bytes.size() - at)));
  std::uint64_t sum = next_state(0, bytes.size());
  for (const std::uint64_t state : states) sum = next_state(sum, state);
  return sum;
}

std::unique_ptr<Transport> checked_transport(std::unique_ptr<Transport> inner) {
  return std::make_unique<CheckedTransport>(std::move(inner));
}

}  // namespace lockstep
