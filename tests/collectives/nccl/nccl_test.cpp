// SPDX-License-Identifier: Apache-2.0
// Members with a GPU each go by NCCL; where one has its data elsewhere all go as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/collectives/gpu/own_gpus.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

TEST_F(OwnGpus, ReduceWithoutTheHost) {
  for (const int members : {1, 2, 3, 8}) {
    with_members(members, [&](Communicator& world) {
      DeviceVector<int> mine(counting(count, world.rank()), world.rank());
      DeviceVector<int> all(count, world.rank());
      world.all_reduce(mine, all, sum);
      EXPECT_EQ(on_host(all), sum_of(members));
      world.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine), sum_of(members));
    });
  }
  EXPECT_EQ(nccl().operations(), 2 * (1 + 2 + 3 + 8));
  EXPECT_EQ(gpus().pinnings(), 0);
}

// NCCL's own largest of floats ignores it.
TEST_F(OwnGpus, MaximaKeepNans) {
  with_members(3, [](Communicator& world) {
    std::vector<float> mine(count, 1.0F);
    if (world.rank() == 1) mine[7] = std::nanf("");
    DeviceVector<float> largest(mine, world.rank());
    world.all_reduce(largest, max);
    EXPECT_TRUE(std::isnan(on_host(largest)[7]));
    EXPECT_EQ(on_host(largest)[8], 1);
  });
}

TEST_F(OwnGpus, GoBesideDataOfTheHost) {
  with_members(3, [&](Communicator& world) {
    for (int turn = 0; turn < 6; ++turn) {
      DeviceVector<int> there(counting(count, world.rank()), world.rank());
      std::vector<int> here = counting(count, world.rank());
      const bool is_there = turn % 2 == 0 || world.rank() != 1;
      if (is_there)
        world.all_reduce(there, sum);
      else
        world.all_reduce(here, sum);
      EXPECT_EQ(is_there ? on_host(there) : here, sum_of(3)) << turn;
      // In the memory of another GPU than before.
      DeviceVector<int> elsewhere(counting(count, world.rank()), (world.rank() + turn) % 3);
      world.all_reduce(elsewhere, sum);
      EXPECT_EQ(on_host(elsewhere), sum_of(3)) << turn;
      world.all_reduce(here, max);
    }
  });
  EXPECT_EQ(nccl().operations(), 3 * (3 + 2));
}

TEST_F(OwnGpus, GoByTheHostWhereTheProgramSaysSo) {
  with_members(2,
               [&](Communicator& world) {
                 DeviceVector<int> mine(counting(count, world.rank()), world.rank());
                 world.all_reduce(mine, sum);
                 EXPECT_EQ(on_host(mine), sum_of(2));
               },
               {.nccl = false});
  EXPECT_EQ(nccl().operations(), 0);
}

// Whatever types and operations are in it, each start is one group of NCCL's; what it lacks, of whatever kinds, is
// handed out by one more.
TEST_F(OwnGpus, DoABatchOfManyKindsAsOneOperation) {
  constexpr int members = 3;
  for (const bool has_more : {false, true}) {
    const int before = nccl().operations();
    with_members(members, [&](Communicator& world) {
      const int rank = world.rank();
      DeviceVector<float> floats(std::vector<float>(count, 1.0F + static_cast<float>(rank)), rank);
      DeviceVector<float> means(std::vector<float>(10, 3.0F * static_cast<float>(rank)), rank);
      DeviceVector<int> ints(counting(count, rank), rank);
      DeviceVector<std::int8_t> small(std::vector<std::int8_t>(7, static_cast<std::int8_t>(rank)), rank);
      DeviceVector<double> sent(std::vector<double>(1000, rank), rank);
      DeviceVector<std::int64_t> sent_too(std::vector<std::int64_t>(1, 2 * rank), rank);
      DeviceVector<unsigned> bits(std::vector<unsigned>(50, 1U << static_cast<unsigned>(rank)), rank);
      DeviceVector<std::int16_t> shorts(std::vector<std::int16_t>(count, 2), rank);
      Batch batch(world);
      batch.all_reduce(floats, sum).all_reduce(means, avg).all_reduce(ints, sum).all_reduce(small, max);
      batch.broadcast(sent, 2).broadcast(sent_too, 1);
      if (has_more) batch.all_reduce(bits, bit_or).all_reduce(shorts, sum);
      batch.run();
      EXPECT_EQ(on_host(floats), std::vector<float>(count, 6.0F));
      EXPECT_EQ(on_host(means), std::vector<float>(10, 3.0F));
      EXPECT_EQ(on_host(ints), sum_of(members));
      EXPECT_EQ(on_host(small), std::vector<std::int8_t>(7, 2));
      EXPECT_EQ(on_host(sent), std::vector<double>(1000, 2.0));
      EXPECT_EQ(on_host(sent_too)[0], 2);
      if (has_more) {
        EXPECT_EQ(on_host(bits), std::vector<unsigned>(50, 7));
        EXPECT_EQ(on_host(shorts), std::vector<std::int16_t>(count, 6));
      }
      for (int turn = 0; turn < 2; ++turn) batch.run();
      EXPECT_EQ(on_host(floats), std::vector<float>(count, 54.0F));
    });
    EXPECT_EQ(nccl().operations() - before, members * 3 * (has_more ? 2 : 1));
  }
  EXPECT_EQ(gpus().pinnings(), 0);
}

// What cannot go by NCCL goes beside it.
TEST_F(OwnGpus, GroupTheCallsOfABatch) {
  with_members(3, [&](Communicator& world) {
    DeviceVector<float> floats(std::vector<float>(count, 1.0F), world.rank());
    DeviceVector<int> ints(std::vector<int>(count, 1), world.rank());
    std::vector<double> here(count, 1.0);
    Batch batch(world);
    batch.all_reduce(floats, sum).all_reduce(here, sum).all_reduce(ints, sum);
    for (int turn = 0; turn < 2; ++turn) batch.run();
    EXPECT_EQ(on_host(floats), std::vector<float>(count, 9.0F));
    EXPECT_EQ(on_host(ints), std::vector<int>(count, 9));
    EXPECT_EQ(here, std::vector<double>(count, 9.0));
  });
  EXPECT_EQ(nccl().operations(), 3 * 2);
}

// With the NCCL and the GPUs that the machine has.
TEST(RealNccl, GoesWithAsManyMembersAsThereAreGpus) {
  if (gpu::backend() == nullptr) GTEST_SKIP() << lacks(text("needs a GPU; ", gpu::why_none()));
  if (nccl::library() == nullptr) GTEST_SKIP() << lacks(text("needs NCCL; ", nccl::why_none()));
  const int members = std::min(gpu::backend()->devices(), 8);
  with_members(members, [&](Communicator& world) {
    const int rank = world.rank();
    const gpu::Stream stream = gpu::backend()->make_stream(rank);
    {
      DeviceVector<int> mine(counting(count, rank), rank);
      PreparedCall plan = world.on(stream).plan_all_reduce(mine, sum);
      plan.run();
      EXPECT_EQ(plan.algorithm(), "nccl");
      gpu::backend()->wait(stream);
      EXPECT_EQ(on_host(mine), sum_of(members));
      DeviceVector<unsigned> bits(std::vector<unsigned>(count, 1U << static_cast<unsigned>(rank)), rank);
      world.all_reduce(bits, bit_or);
      EXPECT_EQ(on_host(bits), std::vector<unsigned>(count, (1U << static_cast<unsigned>(members)) - 1));
      DeviceVector<int> all(count * static_cast<std::size_t>(members), rank);
      const DeviceVector<int> given(counting(count, 10'000 * rank), rank);
      world.all_gather_async(given, all).wait();
      EXPECT_EQ(on_host(all)[count * static_cast<std::size_t>(members - 1)], 10'000 * (members - 1));
      world.broadcast(mine, members - 1);
      EXPECT_EQ(on_host(mine), sum_of(members));
      const std::vector<std::size_t> counts(static_cast<std::size_t>(members), 5);
      DeviceVector<int> crossed(5 * static_cast<std::size_t>(members), rank);
      world.all_to_all_v(all.span().first(crossed.size()), counts, crossed, counts);
      EXPECT_EQ(on_host(crossed)[1], 1);
    }
    gpu::backend()->end_stream(rank, stream);
  });
}

// The library itself, which need not see a GPU for that.
TEST(RealNccl, IsLoadedOrSaysWhyNot) {
  std::string why;
  const auto library = nccl::load(why);
  if (library == nullptr) {
    EXPECT_NE(why, "");
    GTEST_SKIP() << lacks(text("needs NCCL; ", why));
  }
  EXPECT_EQ(library->version().substr(0, 2), "2.");
}

}  // namespace
}  // namespace lockstep::test
