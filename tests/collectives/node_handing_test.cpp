// SPDX-License-Identifier: Apache-2.0
// Writing what others will read: whatever way it goes, the bytes arrive; and when it goes past the caches.
#include "collectives/node/handing.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using node::Handing;

constexpr std::size_t large = 64U << 10U;
constexpr std::size_t fastest_machine = 1;  // picoseconds a byte: faster than any is

struct Buffers {
  std::vector<std::byte> from = std::vector<std::byte>(large);
  std::vector<std::byte> to = std::vector<std::byte>(large);
  Buffers() {
    for (std::size_t i = 0; i < large; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  void write(Handing& handing, std::size_t bytes, std::size_t slow) {
    std::ranges::fill(to, std::byte{0});
    handing.write(to.data(), from.data(), bytes, slow);
    ASSERT_TRUE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), to.begin()));
    for (std::size_t i = bytes; i < large; ++i) ASSERT_EQ(to[i], std::byte{0});
  }
};

TEST(NodeHanding, after_three_slow_ones_it_goes_past_the_caches_and_tries_again) {
  Buffers buffers;
  Handing handing;
  for (int round = 0; round < 3; ++round) {
    for (int slow_ones = round == 0 ? 3 : 1; slow_ones > 0; --slow_ones) {
      EXPECT_FALSE(handing.goes_past(large, fastest_machine)) << round;
      buffers.write(handing, large, fastest_machine);
    }
    for (int past = 0; past < 128; ++past) {
      ASSERT_TRUE(handing.goes_past(large, fastest_machine)) << round << ' ' << past;
      buffers.write(handing, 5000, fastest_machine);
    }
  }
}

TEST(NodeHanding, a_fast_one_between_slow_ones_keeps_it_in_the_caches) {
  Buffers buffers;
  Handing handing;
  for (int i = 0; i < 12; ++i) {
    buffers.write(handing, large, i % 3 == 2 ? Handing::never_slow : fastest_machine);
    EXPECT_FALSE(handing.goes_past(large, fastest_machine));
  }
  EXPECT_GT(handing.mean(), 1);
}

TEST(NodeHanding, always_never_and_what_is_too_little_to_be_timed) {
  Buffers buffers;
  Handing handing;
  EXPECT_TRUE(handing.goes_past(large, 0));
  EXPECT_FALSE(handing.goes_past(Handing::timed_from - 1, 0));
  for (int i = 0; i < 10; ++i) {
    buffers.write(handing, large, 0);
    buffers.write(handing, large, node::never);
    buffers.write(handing, Handing::timed_from - 1, fastest_machine);
  }
  EXPECT_EQ(handing.mean(), 0) << "nothing was timed";
  EXPECT_FALSE(handing.goes_past(large, node::never));
  EXPECT_FALSE(handing.goes_past(large, fastest_machine));
}

}  // namespace
}  // namespace lockstep
