// SPDX-License-Identifier: Apache-2.0
// The numbers behind the transport over MPI, without MPI: how tags are shared out, and how long messages are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>

#include "collectives/mpi/chunks.hpp"
#include "topology/machine/mpi/tag_layout.hpp"

namespace lockstep {
namespace {

// What MPI promises; Intel MPI's over some networks; MPICH's; Open MPI's.
const int largest_tags[] = {32767,         65535,         (1 << 19) - 1, (1 << 20) - 1,
                            (1 << 24) - 1, (1 << 28) - 1, (1 << 30) - 1, INT_MAX};

TEST(TagLayout, HasChannelsLanesAndMarksForEveryLargestTag) {
  for (const int largest : largest_tags) {
    const TagLayout layout = tag_layout(largest);
    EXPECT_GE(layout.channels, 400) << largest;
    EXPECT_GE(layout.lanes, 4) << largest;
    EXPECT_LE(layout.lanes, 16) << largest;
    EXPECT_GE(layout.call_tag_bits, 4) << largest;
    EXPECT_LE(layout.call_tag_bits, 20) << largest;
  }
}

TEST(TagLayout, FitsTheLargestTag) {
  const TagLayout least = tag_layout(32767);
  EXPECT_EQ(least.channels, 455);
  EXPECT_EQ(least.lanes, 4);
  EXPECT_EQ(least.call_tag_bits, 4);
  const TagLayout most = tag_layout(INT_MAX);
  EXPECT_EQ(most.channels, 1023);
  EXPECT_EQ(most.lanes, 16);
  EXPECT_EQ(most.call_tag_bits, 17);
}

TEST(TagLayout, EveryTagIsAllowedAndDataNeverMeetSetUp) {
  for (const int largest : largest_tags) {
    const TagLayout layout = tag_layout(largest);
    const int last = layout.channels - 1;
    EXPECT_EQ(layout.set_up(0, 0), 0);
    EXPECT_EQ(layout.data(0, 0, 0), layout.set_up(last, TagLayout::kinds - 1) + 1) << largest;
    EXPECT_LE(layout.message(last, UINT32_MAX), largest);
    EXPECT_EQ(layout.message(0, 0), layout.data(0, layout.call_lanes() - 1, UINT32_MAX) + 1) << largest;
    EXPECT_GE(layout.message_bits(), 5) << largest;
  }
}

TEST(TagLayout, AllTagsOfTheSmallestLayoutDiffer) {
  const TagLayout layout = tag_layout(32767);
  std::set<int> tags;
  std::size_t made = 0;
  for (int channel = 0; channel < layout.channels; ++channel) {
    for (int kind = 0; kind < TagLayout::kinds; ++kind, ++made) tags.insert(layout.set_up(channel, kind));
    for (int lane = 0; lane < layout.call_lanes(); ++lane) {
      for (std::uint32_t call_tag = 0; call_tag < 16; ++call_tag, ++made)
        tags.insert(layout.data(channel, lane, call_tag));
    }
    for (std::uint32_t call_tag = 0; call_tag < 32; ++call_tag, ++made) tags.insert(layout.message(channel, call_tag));
  }
  EXPECT_EQ(tags.size(), made);
}

TEST(TagLayout, NeighboursInTheLargestLayoutDiffer) {
  const TagLayout layout = tag_layout(INT_MAX);
  const std::uint32_t top = (1U << 17U) - 1;
  EXPECT_EQ(layout.data(3, 2, top) + 1, layout.data(3, 3, 0));
  EXPECT_EQ(layout.data(3, 15, top) + 1, layout.data(4, 0, 0));
  EXPECT_EQ(layout.data(3, 2, top + 1), layout.data(3, 2, 0)) << "the mark is cut to what fits";
}

TEST(TagLayout, FindsChannelOfEveryTag) {
  for (const int largest : largest_tags) {
    const TagLayout layout = tag_layout(largest);
    for (const int channel : {0, 1, layout.channels / 2, layout.channels - 1}) {
      for (int kind = 0; kind < TagLayout::kinds; ++kind) {
        EXPECT_EQ(layout.channel_of(layout.set_up(channel, kind)), channel) << largest;
        EXPECT_TRUE(layout.is_set_up(layout.set_up(channel, kind))) << largest;
      }
      for (const std::uint32_t call_tag : {0U, 1U, UINT32_MAX}) {
        for (int lane = 0; lane < layout.call_lanes(); ++lane)
          EXPECT_EQ(layout.channel_of(layout.data(channel, lane, call_tag)), channel) << largest;
        EXPECT_EQ(layout.channel_of(layout.message(channel, call_tag)), channel) << largest;
        EXPECT_FALSE(layout.is_set_up(layout.message(channel, call_tag))) << largest;
      }
    }
  }
}

TEST(Chunks, CoverTheMessageInOrderAndFit) {
  for (const std::size_t limit : {1U, 2U, 7U, 50U}) {
    for (std::size_t bytes = 0; bytes < 400; ++bytes) {
      const Chunks chunks(bytes, limit);
      std::size_t sum = 0;
      for (std::size_t i = 0; i < chunks.count(); ++i) {
        ASSERT_EQ(chunks.offset(i), sum);
        ASSERT_LE(chunks.size(i), limit + std::max<std::size_t>(1, chunks.count()));
        sum += chunks.size(i);
      }
      ASSERT_EQ(sum, bytes) << "limit " << limit;
    }
  }
}

TEST(Chunks, OfDifferentLengthsDifferInAPartThatBothHave) {
  constexpr std::size_t limit = 7;
  for (std::size_t a = 0; a < 200; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Chunks one(a, limit);
      const Chunks other(b, limit);
      bool differ = false;
      for (std::size_t i = 0; i < std::min(one.count(), other.count()); ++i) differ |= one.size(i) != other.size(i);
      ASSERT_TRUE(differ) << a << " and " << b;
    }
  }
}

TEST(Chunks, OfTerabytesFitIntoAnInt) {
  constexpr std::size_t limit = std::size_t{1} << 30U;
  for (const std::size_t bytes : {limit, limit + 1, limit + 2, 3 * limit, 5 * limit + 1, std::size_t{1} << 43U}) {
    const Chunks chunks(bytes, limit);
    for (std::size_t i = 0; i < chunks.count(); ++i) ASSERT_LE(chunks.size(i), static_cast<std::size_t>(INT_MAX));
  }
  EXPECT_EQ(Chunks(limit, limit).count(), 1U);
  EXPECT_EQ(Chunks(5 * limit, limit).count(), 5U);
}

}  // namespace
}  // namespace lockstep
