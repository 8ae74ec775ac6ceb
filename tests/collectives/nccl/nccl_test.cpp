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

// What NCCL lacks: types, operations, orders.
TEST_F(OwnGpus, ReduceWhatNcclDoesNot) {
  with_members(5, [&](Communicator& world) {
    const auto factor = static_cast<float>(world.rank() + 1);
    std::vector<float> mine(count);
    for (std::size_t i = 0; i < count; ++i) mine[i] = std::sin(static_cast<float>(i) * factor);
    mine[7] = world.rank() == 3 ? std::nanf("") : 1.0F;
    std::vector<float> by_host = mine;
    Communicator ordered = world.reproducible();
    ordered.all_reduce(by_host, sum);
    DeviceVector<float> there(mine, world.rank());
    ordered.all_reduce(there, sum);
    std::vector<float> by_gpus = on_host(there);
    EXPECT_EQ(std::memcmp(by_gpus.data(), by_host.data(), count * sizeof(float)), 0);

    there.copy_from(mine);
    DeviceVector<float> largest(count, world.rank());
    world.all_reduce(there, largest, max);
    EXPECT_TRUE(std::isnan(on_host(largest)[7]));

    // What is divided and what is multiplied first, with the host's bits.
    std::vector<float> means = mine;
    std::vector<std::int64_t> wholes(count, 7 * world.rank() - 3);
    std::vector<std::int64_t> weighted = wholes;
    DeviceVector<float> means_there(mine, world.rank());
    DeviceVector<std::int64_t> wholes_there(wholes, world.rank());
    DeviceVector<std::int64_t> weighted_there(wholes, world.rank());
    Communicator by_host_only = world.duplicate([&] {
      CommunicatorOptions options = ordered.options();
      options.nccl = false;
      return options;
    }());
    by_host_only.all_reduce(means, avg);
    ordered.all_reduce(means_there, avg);
    by_gpus = on_host(means_there);
    EXPECT_EQ(std::memcmp(by_gpus.data(), means.data(), count * sizeof(float)), 0);
    by_host_only.all_reduce(wholes, avg);
    ordered.all_reduce(wholes_there, avg);
    EXPECT_EQ(on_host(wholes_there), wholes);
    by_host_only.all_reduce(weighted, premul_sum(world.rank() + 0.5));
    world.all_reduce(weighted_there, premul_sum(world.rank() + 0.5));
    EXPECT_EQ(on_host(weighted_there), weighted);

    const std::vector<std::int16_t> short_ones(count, static_cast<std::int16_t>(1 << world.rank()));
    DeviceVector<std::int16_t> bits(short_ones, world.rank());
    world.all_reduce(bits, bit_or);
    EXPECT_EQ(on_host(bits), std::vector<std::int16_t>(count, 31));
    DeviceVector<std::int16_t> to_root(short_ones, world.rank());
    world.reduce(to_root, bit_or, 2);
    EXPECT_EQ(on_host(to_root)[count - 1], world.rank() == 2 ? 31 : 1 << world.rank());
    DeviceVector<std::int16_t> block(count / 5, world.rank());
    world.reduce_scatter(DeviceVector<std::int16_t>(short_ones, world.rank()), block, bit_xor);
    EXPECT_EQ(on_host(block), std::vector<std::int16_t>(count / 5, 31));
  });
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_GT(gpus().launches(), 0);
}

TEST_F(OwnGpus, MoveWithoutTheHost) {
  with_members(3, [&](Communicator& world) {
    const int rank = world.rank();
    const DeviceVector<int> mine(counting(3000, 10'000 * rank), rank);
    DeviceVector<int> all(9000, rank);
    world.all_gather(mine, all);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(on_host(all)[static_cast<std::size_t>(3000 * i + 1)], 10'000 * i + 1);
    DeviceVector<int> crossed(3000, rank);
    world.all_to_all(mine, crossed);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(on_host(crossed)[static_cast<std::size_t>(1000 * i + 1)], 10'000 * i + 1000 * rank + 1);
    world.all_to_all(crossed);
    EXPECT_EQ(on_host(crossed), on_host(mine));
    DeviceVector<int> told(3000, rank);
    if (rank == 1) told.copy_from(mine);
    world.broadcast(told, 1);
    EXPECT_EQ(on_host(told), counting(3000, 10'000));
  });
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_EQ(nccl().operations(), 12);
}

TEST_F(OwnGpus, AreAskedOfOneMemberOfEachGpu) {
  with_members(4, [&](Communicator& world) {
    for (int turn = 0; turn < 3; ++turn) {
      DeviceVector<int> mine(counting(count, world.rank()), world.rank() % 3);
      world.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine), sum_of(4));
    }
  });
  EXPECT_EQ(nccl().operations(), 3 * 3);
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

// Some have less than others of a call that members ask each other about.
TEST_F(OwnGpus, AskAlikeWhereMembersHaveUnequallyMuch) {
  with_members(3, [&](Communicator& world) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<int> part(400);
      world.scatter(counting(1200, turn), part, 0);
      EXPECT_EQ(part, counting(400, 400 * world.rank() + turn));
      std::vector<int> whole(1200);
      world.gather(part, whole, 1);
      if (world.rank() == 1) {
        EXPECT_EQ(whole, counting(1200, turn));
      }
    }
  });
  EXPECT_EQ(nccl().operations(), 0);
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

TEST_F(OwnGpus, DoABatchAsOneOperation) {
  with_members(3, [&](Communicator& world) {
    std::vector<DeviceVector<float>> tensors;
    for (std::size_t i = 0; i < 200; ++i)
      tensors.emplace_back(std::vector<float>(i * 3, static_cast<float>(world.rank() + 1)), world.rank());
    DeviceVector<int> others(counting(count, world.rank()), world.rank());
    Batch batch(world);
    for (auto& each : tensors) batch.all_reduce(each, avg);
    batch.all_reduce(others, sum);
    for (int turn = 0; turn < 2; ++turn) batch.run();
    for (const auto& each : tensors) EXPECT_EQ(on_host(each), std::vector<float>(each.size(), 2.0F));
    EXPECT_EQ(on_host(others)[1], 3 * (3 * 1 + 3));
  });
  EXPECT_EQ(nccl().operations(), 3 * 2);
  EXPECT_EQ(gpus().pinnings(), 0);
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
      DeviceVector<int> known = world.allocate_on_gpu<int>(count, rank);
      DeviceVector<int> unlike = world.allocate_on_gpu<int>(count, rank);
      DeviceVector<std::int8_t> small(std::vector<std::int8_t>(7, static_cast<std::int8_t>(rank)), rank);
      DeviceVector<double> sent(std::vector<double>(1000, rank), rank);
      DeviceVector<std::int64_t> sent_too(std::vector<std::int64_t>(1, 2 * rank), rank);
      DeviceVector<unsigned> bits(std::vector<unsigned>(50, 1U << static_cast<unsigned>(rank)), rank);
      DeviceVector<std::int16_t> shorts(std::vector<std::int16_t>(count, 2), rank);
      known.copy_from(counting(count, rank));
      unlike.copy_from(std::vector<int>(count, rank));
      Batch batch(world);
      batch.all_reduce(floats, sum).all_reduce(means, avg).all_reduce(known, sum).all_reduce(small, max);
      // In memory that NCCL knows, but not the same parts of it on all members.
      batch.all_reduce(unlike.span().subspan(rank == 1 ? 1 : 0, 100), prod);
      batch.broadcast(sent, 2).broadcast(sent_too, 1);
      if (has_more) batch.all_reduce(bits, bit_or).all_reduce(shorts, sum);
      batch.run();
      EXPECT_EQ(on_host(floats), std::vector<float>(count, 6.0F));
      EXPECT_EQ(on_host(means), std::vector<float>(10, 3.0F));
      EXPECT_EQ(on_host(known), sum_of(members));
      EXPECT_EQ(on_host(unlike)[99], 0);
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
TEST_F(OwnGpus, DoWhatTheyCanOfABatchAsOneOperation) {
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

TEST_F(OwnGpus, DoABatchThatLiesElsewhereAsBefore) {
  with_members(2, [&](Communicator& world) {
    std::vector<std::vector<float>> here(20, std::vector<float>(100, 1.0F));
    std::vector<DeviceVector<float>> there;
    for (const auto& each : here) there.emplace_back(each, world.rank());
    Batch batch(world);
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (world.rank() == 0)
        batch.all_reduce(here[i], sum);
      else
        batch.all_reduce(there[i], sum);
    }
    for (int turn = 0; turn < 2; ++turn) batch.run();
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(world.rank() == 0 ? here[i] : on_host(there[i]), std::vector<float>(100, 4.0F));
  });
  EXPECT_EQ(nccl().operations(), 0);
}

TEST_F(OwnGpus, ServeSeveralCommunicators) {
  with_members(4, [&](Communicator& world) {
    Communicator half = *world.split(world.rank() % 2, world.rank());
    for (int turn = 0; turn < 3; ++turn) {
      DeviceVector<int> mine(counting(count, 1), world.rank());
      half.all_reduce(mine, sum);
      world.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine)[0], 8);
    }
  });
  EXPECT_EQ(nccl().operations(), 4 * 3 * 2);
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
      for (int turn = 0; turn < 3; ++turn) {
        DeviceVector<int> known = world.allocate_on_gpu<int>(count, rank);
        known.copy_from(counting(count, rank));
        world.all_reduce(known, sum);
        EXPECT_EQ(on_host(known), sum_of(members));
      }
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
  if (library->version() >= "2.27") {
    EXPECT_EQ(library->registering(), nccl::RegistrationMode::together);
  }
}

}  // namespace
}  // namespace lockstep::test
