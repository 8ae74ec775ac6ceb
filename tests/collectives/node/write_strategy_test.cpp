// SPDX-License-Identifier: Apache-2.0
// Writing what others will read: whatever way it goes, the bytes arrive; and when it goes past the caches.
#include "collectives/node/write_strategy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

using node::WriteStrategy;

constexpr std::size_t large = 64U << 10U;
constexpr std::size_t fastest_machine = 1;  // picoseconds a byte: faster than any is

struct Buffers {
  std::vector<std::byte> from = std::vector<std::byte>(large);
  std::vector<std::byte> to = std::vector<std::byte>(large);
  Buffers() {
    for (std::size_t i = 0; i < large; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  void write(WriteStrategy& strategy, std::size_t bytes, std::size_t slow) {
    std::ranges::fill(to, std::byte{0});
    strategy.write(to.data(), from.data(), bytes, slow);
    ASSERT_TRUE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), to.begin()));
    for (std::size_t i = bytes; i < large; ++i) ASSERT_EQ(to[i], std::byte{0});
  }
};

TEST(NodeHanding, WritesPastTheCachesAfterThreeSlowCopies) {
  Buffers buffers;
  WriteStrategy strategy;
  for (int round = 0; round < 3; ++round) {
    for (int slow_ones = round == 0 ? 3 : 1; slow_ones > 0; --slow_ones) {
      EXPECT_FALSE(strategy.bypasses_caches(large, fastest_machine)) << round;
      buffers.write(strategy, large, fastest_machine);
    }
    for (int past = 0; past < 128; ++past) {
      ASSERT_TRUE(strategy.bypasses_caches(large, fastest_machine)) << round << ' ' << past;
      buffers.write(strategy, 5000, fastest_machine);
    }
  }
}

TEST(NodeHanding, StaysInTheCachesAfterAFastCopy) {
  Buffers buffers;
  WriteStrategy strategy;
  for (int i = 0; i < 12; ++i) {
    buffers.write(strategy, large, i % 3 == 2 ? WriteStrategy::never_slow : fastest_machine);
    EXPECT_FALSE(strategy.bypasses_caches(large, fastest_machine));
  }
  EXPECT_GT(strategy.mean(), 1);
}

TEST(NodeHanding, TimesOneOfEightCopiesWhileTheyAreFast) {
  constexpr std::size_t slowest_machine = 1U << 30U;
  Buffers buffers;
  WriteStrategy strategy;
  buffers.write(strategy, large, slowest_machine);
  for (int slow_ones = 0; slow_ones < 7 + 3; ++slow_ones) {
    EXPECT_FALSE(strategy.bypasses_caches(large, fastest_machine)) << slow_ones;
    buffers.write(strategy, large, fastest_machine);
  }
  EXPECT_TRUE(strategy.bypasses_caches(large, fastest_machine));
}

TEST(NodeHanding, DataThatGoAnotherWayCountAsWritesPastTheCaches) {
  Buffers buffers;
  WriteStrategy strategy;
  strategy.count_bypass();  // counts nothing yet
  for (int i = 0; i < 3; ++i) buffers.write(strategy, large, fastest_machine);
  for (int past = 0; past < 128; ++past) {
    EXPECT_TRUE(strategy.bypasses_caches(large, fastest_machine)) << past;
    strategy.count_bypass();
  }
  EXPECT_FALSE(strategy.bypasses_caches(large, fastest_machine));
}

TEST(NodeHanding, TimesOnlyLargeCopies) {
  Buffers buffers;
  WriteStrategy strategy;
  EXPECT_TRUE(strategy.bypasses_caches(large, 0));
  EXPECT_FALSE(strategy.bypasses_caches(WriteStrategy::timed_from - 1, 0));
  for (int i = 0; i < 10; ++i) {
    buffers.write(strategy, large, 0);
    buffers.write(strategy, large, node::never);
    buffers.write(strategy, WriteStrategy::timed_from - 1, fastest_machine);
  }
  EXPECT_EQ(strategy.mean(), 0) << "nothing was timed";
  EXPECT_FALSE(strategy.bypasses_caches(large, node::never));
  EXPECT_FALSE(strategy.bypasses_caches(large, fastest_machine));
}

}  // namespace
}  // namespace lockstep
