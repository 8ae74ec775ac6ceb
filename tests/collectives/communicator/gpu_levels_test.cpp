// SPDX-License-Identifier: Apache-2.0
// Members that share GPUs do their collectives level by level.
#include "tests/collectives/communicator/gpu_level_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/communicator/member_groups.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

using detail::MemberGroups;

MemberGroups arranged(std::vector<int> numbers) { return MemberGroups(numbers); }

TEST(Arrangements, GroupMembersByNearness) {
  const MemberGroups two = arranged({7, 3, 7, 3, 3});
  EXPECT_EQ(two.groups(), (std::vector<std::vector<int>>{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(two.group_of(3), 1);
  EXPECT_EQ(two.place_of(4), 2);
  EXPECT_EQ(two.by_group(), (std::vector{0, 2, 1, 3, 4}));
  EXPECT_FALSE(two.is_even());
  EXPECT_FALSE(two.is_in_order());
  EXPECT_TRUE(arranged({0, 1, 0, 1}).is_even());
  EXPECT_TRUE(arranged({1, 1, 0, 0, 0}).is_in_order());
}

// Symbols that are combined by the balanced tree, whole and level by level.
std::string tree(const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts.front();
  const auto left = static_cast<std::ptrdiff_t>(std::bit_floor(parts.size() - 1));
  return text('(', tree({parts.begin(), parts.begin() + left}), tree({parts.begin() + left, parts.end()}), ')');
}

TEST(Arrangements, AreAlignedWhereTheBalancedTreeIsTheSame) {
  int aligned = 0;
  for (std::size_t members = 1; members <= 6; ++members) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < members; ++i) all.push_back(std::to_string(i));
    std::size_t layouts = 1;
    for (std::size_t i = 0; i < members; ++i) layouts *= 3;
    for (std::size_t layout = 0; layout < layouts; ++layout) {
      std::vector<int> numbers;
      for (std::size_t i = 0, left = layout; i < members; ++i, left /= 3) numbers.push_back(static_cast<int>(left % 3));
      const MemberGroups each(numbers);
      std::vector<std::string> sums;
      for (const auto& group : each.groups()) {
        std::vector<std::string> parts;
        parts.reserve(group.size());
        for (const int member : group) parts.push_back(std::to_string(member));
        sums.push_back(tree(parts));
      }
      const bool is_same = tree(sums) == tree(all);
      if (each.is_aligned()) {
        EXPECT_TRUE(is_same) << tree(sums);
        ++aligned;
      }
    }
  }
  EXPECT_GT(aligned, 30);
  EXPECT_TRUE(arranged({0, 0, 1, 1, 2}).is_aligned());
  EXPECT_FALSE(arranged({0, 0, 0, 1, 1}).is_aligned());
  EXPECT_FALSE(arranged({0, 1, 1}).is_aligned());
  EXPECT_FALSE(arranged({0, 1, 0, 1}).is_aligned());
}

class GpuLevels : public OwnGpus {};

class LayoutsOfGpus : public OwnGpus, public testing::WithParamInterface<LayoutOfGpus> {};

INSTANTIATE_TEST_SUITE_P(All, LayoutsOfGpus,
                         testing::Values(LayoutOfGpus{"shared_0_0_1", {0, 0, 1}},
                                         LayoutOfGpus{"shared_0_1_0_1", {0, 1, 0, 1}},
                                         LayoutOfGpus{"shared_0_0_1_1_1", {0, 0, 1, 1, 1}},
                                         LayoutOfGpus{"shared_2_0_0_1_2", {2, 0, 0, 1, 2}},
                                         LayoutOfGpus{"nodes_2_2", {0, 1, 2, 3}, {2, 2}},
                                         LayoutOfGpus{"nodes_3_3", {0, 1, 2, 3, 4, 5}, {3, 3}},
                                         LayoutOfGpus{"nodes_and_shared", {0, 0, 1, 1, 2, 3}, {4, 2}}),
                         [](const auto& each) { return each.param.name; });

// What is rounded differently in every order.
std::vector<float> uneven(int rank, std::size_t elements) {
  std::vector<float> all(elements);
  for (std::size_t i = 0; i < elements; ++i)
    all[i] = std::sin(static_cast<float>(i * 7) * static_cast<float>(rank + 1));
  return all;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& all) {
  std::vector<std::uint32_t> bits(all.size());
  std::ranges::transform(all, bits.begin(), [](float each) { return std::bit_cast<std::uint32_t>(each); });
  return bits;
}

TEST_P(LayoutsOfGpus, KeepTheBits) {
  std::vector<std::vector<std::uint32_t>> results(GetParam().devices.size());
  with_layout(GetParam(), [&](Communicator& world, int device) {
    const std::vector<float> mine = uneven(world.rank(), count);
    // Reproducible ones are the host's; of others all members have the same.
    Communicator ordered = world.reproducible();
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<float> by_host = mine;
      DeviceVector<float> there(mine, device);
      if (turn % 2 == 0) {
        ordered.all_reduce(by_host, sum);
        ordered.all_reduce(there, sum);
      } else {
        ordered.all_reduce(by_host, avg);
        ordered.all_reduce(there, avg);
      }
      EXPECT_EQ(bits_of(on_host(there)), bits_of(by_host)) << turn;
      there.copy_from(mine);
      world.all_reduce(there, avg);
      results[static_cast<std::size_t>(world.rank())] = bits_of(on_host(there));
      world.barrier();
      for (const auto& theirs : results) EXPECT_EQ(theirs, results.front()) << turn;
      world.barrier();
    }
    std::vector<float> some = mine;
    if (world.rank() == 1) some[7] = std::nanf("");
    DeviceVector<float> largest(some, device);
    world.all_reduce(largest, max);
    EXPECT_TRUE(std::isnan(on_host(largest)[7]));
  });
}

// One launch for those on a GPU, NCCL among the owners, and nothing by way of the host.
TEST_F(GpuLevels, CombineOnAGpuAndGoByNcclToOthers) {
  const auto first = [](Communicator& world, int device) {
    DeviceVector<int> mine(counting(count, world.rank()), device);
    PreparedCall plan = world.plan_all_reduce(mine, sum);
    plan.run();
    EXPECT_EQ(on_host(mine), sum_of(5));
    EXPECT_EQ(plan.algorithm(), "nccl by levels");
  };
  with_layout({"shared", {0, 0, 1, 1, 1}}, first);
  EXPECT_EQ(nccl().operations(), 2);
  if (!node_memory()) return;
  EXPECT_EQ(gpus().launches(), 2);
  EXPECT_EQ(gpus().pinnings(), 0);
}

TEST_F(GpuLevels, AreNotMadeOfMembersThatAllShareOne) {
  with_layout({"one", {3, 3, 3}}, [](Communicator& world, int device) {
    for (int turn = 0; turn < 2; ++turn) {
      DeviceVector<int> mine(counting(count, world.rank()), device);
      world.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine), sum_of(3));
    }
  });
  EXPECT_EQ(nccl().operations(), 0);
  EXPECT_EQ(gpus().launches(), node_memory() ? 2 : 0);
}

// What is done otherwise, or lies elsewhere, goes as if there were no levels.
TEST_F(GpuLevels, GoBesideOtherCalls) {
  with_layout({"shared", {0, 0, 1, 1}}, [&](Communicator& world, int device) {
    Communicator half = *world.split(world.rank() % 2, world.rank());
    for (int turn = 0; turn < 4; ++turn) {
      DeviceVector<int> mine(counting(count, world.rank()), turn == 2 ? (device + world.rank()) % 3 : device);
      world.all_reduce(mine, sum);
      EXPECT_EQ(on_host(mine), sum_of(4));
      DeviceVector<int> crossed(count - count % 4, device);
      world.all_to_all(DeviceVector<int>(counting(count - count % 4, 0), device), crossed);
      EXPECT_EQ(on_host(crossed)[0], static_cast<int>(count / 4) * world.rank());
      world.scan(mine, sum);
      std::vector<int> here = counting(count, world.rank());
      world.all_reduce(here, sum);
      EXPECT_EQ(here, sum_of(4));
      DeviceVector<int> ours(std::vector<int>(count, 1), device);
      half.all_reduce(ours, sum);
      EXPECT_EQ(on_host(ours), std::vector<int>(count, 2));
    }
  });
  EXPECT_GT(nccl().operations(), 0);
}

TEST_P(LayoutsOfGpus, ServeStreamsPlansAndBatches) {
  const int members = GetParam().size();
  with_layout(GetParam(), [&](Communicator& world, int device) {
    {
      const Stream stream(gpus(), device);
      DeviceVector<int> mine(count, device);
      std::vector<int> after;
      PreparedCall plan = world.on(stream.get()).plan_all_reduce(mine, sum);
      PreparedCall beside = world.plan_all_reduce(mine, sum);
      for (int turn = 0; turn < 9; ++turn) {
        stream.put([&] { mine.copy_from(counting(count, world.rank())); });
        if (turn % 3 == 0) plan.run();
        if (turn % 3 == 1) world.on(stream.get()).all_reduce(mine, sum);
        if (turn % 3 == 2) world.on(stream.get()).all_reduce_async(mine, sum).wait();
        stream.put([&] { after = on_host(mine); });
        stream.wait();
        EXPECT_EQ(after, sum_of(members));
        mine.copy_from(counting(count, world.rank()));
        if (turn % 2 == 0)
          beside.run();
        else
          beside.start().wait();
        EXPECT_EQ(on_host(mine), sum_of(members)) << turn;
      }
    }
    std::vector<DeviceVector<float>> tensors;
    for (std::size_t i = 0; i < 130; ++i)
      tensors.emplace_back(std::vector<float>(i * 3, static_cast<float>(world.rank())), device);
    DeviceVector<int> told(counting(count, world.rank()), device);
    Batch batch(world);
    for (auto& each : tensors) batch.all_reduce(each, avg);
    batch.broadcast(told, members - 1);
    for (int turn = 0; turn < 8; ++turn) batch.run();
    const auto mean = static_cast<float>(members - 1) / 2;
    for (const auto& each : tensors) EXPECT_EQ(on_host(each), std::vector<float>(each.size(), mean));
    EXPECT_EQ(on_host(told), counting(count, members - 1));
  });
}

}  // namespace
}  // namespace lockstep::test
