// SPDX-License-Identifier: Apache-2.0
// How the tags of a wire's communicator are shared out, so that one communicator is enough for everything: from 0 on
// a few for the set-up messages of each channel, above them those of the data, by channel, lane and call tag.
// Half of the lanes are one for all messages between two members, whose call tags are tags of the program. Numbers
// only: no MPI in here.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

struct TagLayout {
  static constexpr int kinds = 8;  // of set-up messages, per channel

  int channels = 0;
  int lanes = 0;          // of data, per channel; a power of two
  int call_tag_bits = 0;  // how much of a call tag the MPI tag can hold

  constexpr int set_up(int channel, int kind) const { return channel * kinds + kind; }

  // The lanes 0.. that collective calls have, and one for messages, in which more of a call tag is kept.
  constexpr int call_lanes() const { return lanes / 2; }
  constexpr int message_bits() const {
    return call_tag_bits + static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) - 2;
  }

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

// What fits into tags 0..largest. Channels come first (exchanges that live at once), then lanes, then call tags: as few
// lanes as 4 rather than so small a call tag that different calls are taken for one. The least that MPI promises,
// 32767, gives 455 channels of 4 lanes with 4 bits; 2^31-1 gives 1023 channels of 16 lanes with 17 bits.
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
