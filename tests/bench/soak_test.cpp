// SPDX-License-Identifier: Apache-2.0
// Random work among threads: it is right, a seed repeats it, and one wrong byte is found and told.
#include "bench/soak.hpp"

#include <gtest/gtest.h>

#include "tests/collectives/communicator/members.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

const auto quietly = [](const SoakResult&) {};

TEST(Soak, FindsNothingWrong) {
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

TEST(Soak, ASeedRepeatsIt) {
  with_members(3, [](Communicator& world) {
    const SoakOptions options{.rounds = 10, .seed = 5, .most_bytes = 4096};
    const SoakResult first = soak(world, options, quietly);
    const SoakResult again = soak(world, options, quietly);
    EXPECT_EQ(first.operations, again.operations);
    EXPECT_EQ(first.bytes, again.bytes);
    const SoakResult other = soak(world, {.rounds = 10, .seed = 6, .most_bytes = 4096}, quietly);
    EXPECT_NE(first.bytes, other.bytes);
  });
}

TEST(Soak, AWrongByteIsToldOnAllMembersAndItsRoundAloneHasItToo) {
  with_members(3, [](Communicator& world) {
    SoakOptions options{.rounds = 30, .seed = 3, .most_bytes = 4096};
    options.spoil = [&](std::uint64_t round, Buffers& result) {
      if (round != 21 || world.rank() != 1 || result.output_count() == 0) return;
      *static_cast<std::byte*>(result.output()) ^= std::byte{1};
    };
    const SoakResult result = soak(world, options, quietly);
    EXPECT_EQ(result.rounds, 22U) << "it ends there";
    EXPECT_NE(result.wrong.find("round 21, operation "), std::string::npos) << result.wrong;
    EXPECT_NE(result.wrong.find("1 wrong elements, first on rank 1, in "), std::string::npos) << result.wrong;
    options.first_round = 21;
    options.rounds = 1;
    EXPECT_EQ(soak(world, options, quietly).wrong, result.wrong);
  });
}

TEST(Soak, EndsAfterItsTime) {
  with_members(2, [](Communicator& world) {
    const SoakResult result = soak(world, {.seconds = 0.05, .most_bytes = 64}, quietly);
    EXPECT_GT(result.rounds, 0U);
    EXPECT_EQ(result.wrong, "");
  });
}

}  // namespace
}  // namespace lockstep::bench
