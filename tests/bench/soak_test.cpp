// SPDX-License-Identifier: Apache-2.0
// Random work among threads: it is right, a seed repeats it, and one wrong byte is found and told.
#include "bench/soak.hpp"

#include <gtest/gtest.h>

#include "tests/collectives/members.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

const auto quietly = [](const SoakResult&) {};

TEST(Soak, finds_nothing_wrong) {
  for (const int members : {1, 2, 3, 5}) {
    with_members(members, [](Communicator& world) {
      const SoakResult result = soak(world, {.rounds = 40, .seed = 11, .most_bytes = 4096}, quietly);
      EXPECT_EQ(result.wrong, "");
      EXPECT_EQ(result.rounds, 40U);
      EXPECT_GT(result.operations, 80U);
      EXPECT_FALSE(result.interrupted);
    });
  }
}

TEST(Soak, a_seed_repeats_it) {
  with_members(3, [](Communicator& world) {
    const SoakWish wish{.rounds = 10, .seed = 5, .most_bytes = 4096};
    const SoakResult first = soak(world, wish, quietly);
    const SoakResult again = soak(world, wish, quietly);
    EXPECT_EQ(first.operations, again.operations);
    EXPECT_EQ(first.bytes, again.bytes);
    const SoakResult other = soak(world, {.rounds = 10, .seed = 6, .most_bytes = 4096}, quietly);
    EXPECT_NE(first.bytes, other.bytes);
  });
}

TEST(Soak, a_wrong_byte_is_told_on_all_members_and_its_round_alone_has_it_too) {
  with_members(3, [](Communicator& world) {
    SoakWish wish{.rounds = 30, .seed = 3, .most_bytes = 4096};
    wish.spoil = [&](std::uint64_t round, Buffers& result) {
      if (round != 21 || world.rank() != 1 || result.output_count() == 0) return;
      *static_cast<std::byte*>(result.output()) ^= std::byte{1};
    };
    const SoakResult result = soak(world, wish, quietly);
    EXPECT_EQ(result.rounds, 22U) << "it ends there";
    EXPECT_NE(result.wrong.find("round 21, operation "), std::string::npos) << result.wrong;
    EXPECT_NE(result.wrong.find("1 wrong elements, first on rank 1, in "), std::string::npos) << result.wrong;
    wish.first_round = 21;
    wish.rounds = 1;
    EXPECT_EQ(soak(world, wish, quietly).wrong, result.wrong);
  });
}

TEST(Soak, ends_after_its_time) {
  with_members(2, [](Communicator& world) {
    const SoakResult result = soak(world, {.seconds = 0.05, .most_bytes = 64}, quietly);
    EXPECT_GT(result.rounds, 0U);
    EXPECT_EQ(result.wrong, "");
  });
}

}  // namespace
}  // namespace lockstep::bench
