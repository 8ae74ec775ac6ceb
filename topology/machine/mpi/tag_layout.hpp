// SPDX-License-Identifier: Apache-2.0
// Divides the tags of a wire's communicator, so that one communicator is enough for everything. The lowest tags are for
// set-up messages, a few for each channel. Above them are those of the data, by channel, lane and call tag. This file
// has numbers only, and no MPI.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// Computes tags from channels, lanes and call tags, and back.
struct TagLayout {
  static constexpr int kinds = 8;  // kinds of set-up messages, for each channel

  int channels = 0;
  int lanes = 0;          // lanes of data, for each channel; a power of two
  int call_tag_bits = 0;  // bits of a call tag that an MPI tag can hold

  // Returns the tag of a kind of set-up message.
  constexpr int set_up(int channel, int kind) const { return channel * kinds + kind; }

  // Returns a tag that no message has.
  constexpr int unused() const { return set_up(0, kinds - 1); }

  // Half of the lanes are for collective calls. The other half is one lane for messages between two members, so that it
  // keeps more bits of a call tag. Programs choose those call tags.
  constexpr int call_lanes() const { return lanes / 2; }
  constexpr int message_bits() const {
    return call_tag_bits + static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) - 2;
  }

  // Return the tag of a message of a collective call, and of one between two members.
  constexpr int data(int channel, int lane, std::uint32_t call_tag) const {
    return at(channel, lane, call_tag, call_tag_bits);
  }
  constexpr int message(int channel, std::uint32_t call_tag) const {
    return at(channel, call_lanes(), call_tag, message_bits());
  }

  constexpr bool is_set_up(int tag) const { return tag < channels * kinds; }
  // Returns the channel of any tag, of set-up messages or of data.
  constexpr int channel_of(int tag) const {
    if (is_set_up(tag)) return tag / kinds;
    return static_cast<int>(((tag - std::int64_t{channels} * kinds) >> call_tag_bits) / lanes);
  }

 private:
  constexpr int at(int channel, int lane, std::uint32_t call_tag, int bits) const {
    const std::uint32_t kept = call_tag & ((1U << static_cast<unsigned>(bits)) - 1);
    const std::int64_t row = std::int64_t{channel} * lanes + lane;
    return static_cast<int>(std::int64_t{channels} * kinds + (row << call_tag_bits) + kept);
  }
};

// Returns a layout that fits into tags 0..`largest`. Channels (exchanges that live at once) come first, then lanes,
// then bits of call tags. It takes only 4 lanes before it takes so few bits that different calls look alike. The least
// that MPI promises, 32767, gives 455 channels of 4 lanes with 4 bits; 2^31-1 gives 1023 channels of 16 lanes with 17
// bits.
constexpr TagLayout tag_layout(int largest) {
  constexpr std::int64_t enough_channels = 1000;
  constexpr int most_bits = 20;
  constexpr int good_bits = 8;
  constexpr int least_bits = 4;
  const std::int64_t tags = std::int64_t{largest} + 1;
  const auto channels = [&](int lanes, int bits) { return tags / (TagLayout::kinds + (std::int64_t{lanes} << bits)); };
  for (int lanes = 16;; lanes /= 2) {
    int bits = most_bits;
    while (bits > least_bits && channels(lanes, bits) < enough_channels) --bits;
    if (bits >= good_bits || lanes == 4) return {static_cast<int>(channels(lanes, bits)), lanes, bits};
  }
}

}  // namespace lockstep
