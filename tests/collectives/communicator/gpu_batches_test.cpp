// SPDX-License-Identifier: Apache-2.0
// Many tensors in the memory of GPUs as one operation: what multiplies and divides them is done by the launches that
// pack and unpack, with the bits of a call for each.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "collectives/communicator/member_groups.hpp"
#include "tests/collectives/communicator/gpu_level_cases.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

// Of one member: some tensors are empty, and none is like another.
template <class T>
class ManyTensors {
 public:
  static constexpr std::size_t number = 250;

  ManyTensors(Communicator& world, int device, int other) : world_(world), batch_(world) {
    for (std::size_t i = 0; i < number; ++i) {
      summed_.emplace_back(given(i), device);
      meant_.emplace_back(given(i), i < 10 ? other : device);
    }
    for (std::size_t i = 0; i < number; ++i) batch_.all_reduce(summed_[i], op_of(i)).all_reduce(meant_[i], avg);
  }

  void check() {
    for (std::size_t i = 0; i < number; ++i) {
      summed_[i].copy_from(given(i));
      meant_[i].copy_from(given(i));
    }
    batch_.run();
    for (std::size_t i = 0; i < number; ++i) {
      std::vector<T> sums = given(i);
      std::vector<T> means = given(i);
      world_.all_reduce(sums, op_of(i));
      world_.all_reduce(means, avg);
      EXPECT_EQ(on_host(summed_[i]), sums) << i;
      EXPECT_EQ(on_host(meant_[i]), means) << i;
    }
  }

 private:
  std::vector<T> given(std::size_t i) const {
    std::vector<T> all(i * 5 % 37);
    for (std::size_t at = 0; at < all.size(); ++at) {
      const auto uneven = static_cast<float>((at + i) * 7 + 1) * static_cast<float>(world_.rank() + 1);
      all[at] = static_cast<T>(std::sin(uneven) * 100.0F);
    }
    return all;
  }
  PremulSum op_of(std::size_t i) const { return premul_sum(0.3 * static_cast<double>(i) - world_.rank()); }

  Communicator& world_;
  std::vector<DeviceVector<T>> summed_;
  std::vector<DeviceVector<T>> meant_;
  Batch batch_;
};

// Integers have the same bits in every order.
template <class T>
void check_many(Communicator& world, int device, int other) {
  Communicator ordered = std::is_integral_v<T> ? world.duplicate() : world.reproducible();
  ManyTensors<T> all(ordered, device, other);
  for (int turn = 0; turn < 2; ++turn) all.check();  // where two ways are tried in turns, by both
}

class GpuBatches : public OwnGpus {
 protected:
  // Combines 300 tensors of ten numbers each, from the member's own on.
  void combine_hundreds(Communicator& world, int device, bool is_mean) const {
    std::vector<DeviceVector<double>> tensors;
    for (int i = 0; i < 300; ++i) tensors.emplace_back(std::vector<double>(10, i + world.rank()), device);
    Batch batch(world);
    for (auto& each : tensors) {
      if (is_mean)
        batch.all_reduce(each, avg);
      else
        batch.all_reduce(each, premul_sum(world.rank() + 1));
    }
    batch.run();
    for (int i = 0; i < 300; ++i) {
      double right = is_mean ? i + 0.5 * (world.size() - 1) : 0;
      for (int rank = 0; rank < world.size() && !is_mean; ++rank) right += (rank + 1) * (i + rank);
      EXPECT_EQ(on_host(tensors[static_cast<std::size_t>(i)]), std::vector<double>(10, right)) << i;
    }
  }
};

class LayoutsOfBatches : public OwnGpus, public testing::WithParamInterface<LayoutOfGpus> {};

INSTANTIATE_TEST_SUITE_P(All, LayoutsOfBatches,
                         testing::Values(LayoutOfGpus{"own_0_1_2", {0, 1, 2}},
                                         LayoutOfGpus{"shared_0_0_1_1_2", {0, 0, 1, 1, 2}},
                                         LayoutOfGpus{"nodes_2_2", {0, 1, 2, 3}, {2, 2}},
                                         LayoutOfGpus{"nodes_and_shared", {0, 0, 1, 1, 2, 3}, {4, 2}}),
                         [](const auto& each) { return each.param.name; });

TEST_P(LayoutsOfBatches, KeepTheBitsOfEachAlone) {
  with_layout(GetParam(), [&](Communicator& world, int device) {
    check_many<float>(world, device, device);
    check_many<bf16>(world, device, device);
    check_many<std::int32_t>(world, device, device);
  });
  EXPECT_GT(nccl().operations(), 0);
}

// What makes them is in a stream that no default one comes after; whatever way they go.
TEST_P(LayoutsOfBatches, ComeAfterMarks) {
  for (const bool by_nccl : {true, false}) {
    const auto body = [&](Communicator& world, int device) {
      const OwnStream stream(gpus(), device);
      DeviceVector<int> one(count, device);
      DeviceVector<int> other(10, device);
      DeviceVector<double> third(100, device);
      Batch batch(world);
      batch.all_reduce(one, sum).all_reduce(other, sum).all_reduce(third, sum);
      for (int turn = 0; turn < 4; ++turn) {
        one.copy_from(std::vector<int>(count, -1));
        other.copy_from(std::vector<int>(10, -1));
        third.copy_from(std::vector<double>(100, -1));
        stream.put([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          one.copy_from(counting(count, world.rank()));
          other.copy_from(std::vector<int>(10, 1));
          third.copy_from(std::vector<double>(100, 2));
        });
        batch.start_behind({gpus().mark(device, stream.get())}).wait();
        EXPECT_EQ(on_host(one), sum_of(world.size()));
        EXPECT_EQ(on_host(other), std::vector<int>(10, world.size()));
        EXPECT_EQ(on_host(third), std::vector<double>(100, 2.0 * world.size()));
      }
    };
    with_layout(GetParam(), body, {.nccl = by_nccl});
  }
}

// Tensors of the same sum in another order, whatever way they go.
TEST_P(LayoutsOfBatches, InAnotherOrderAreAMismatch) {
  for (const bool by_nccl : {true, false}) {
    std::atomic<int> refused = 0;
    const auto body = [&](Communicator& world, int device) {
      const std::size_t first = world.rank() == 1 ? 300 : 700;
      DeviceVector<int> one(first, device);
      DeviceVector<int> other(1000 - first, device);
      Batch batch(world);
      batch.all_reduce(one, sum).all_reduce(other, sum);
      try {
        batch.run();
        world.barrier();
      } catch (const Error& error) {
        EXPECT_PRED2(holds, error.what(), "differ in order, shape");
        ++refused;
      }
    };
    with_layout(GetParam(), body, {.nccl = by_nccl});
    EXPECT_EQ(refused, GetParam().size());
  }
}

TEST_F(GpuBatches, TakeColumnsAndSingleTensorsOfGpusBesideThoseOfTheHost) {
  for (const bool in_node : {true, false}) {
    const auto body = [](Communicator& world) {
      const std::vector<int> given = counting(600, 10 * world.rank());
      const auto columns = [](int* first) { return StridedBuffer<int>{first, 50, 11, 2}; };
      DeviceVector<int> summed(given);
      DeviceVector<int> meant(given);
      DeviceVector<int> single(given, 1);
      std::vector<int> here = given;
      std::vector<int> right_sums = given;
      std::vector<int> right_means = given;
      Batch batch(world);
      batch.all_reduce(columns(summed.data()), premul_sum(1.5)).all_reduce(columns(meant.data()), avg);
      batch.all_reduce(single, avg).all_reduce(here, premul_sum(world.rank())).run();
      world.all_reduce(columns(right_sums.data()), premul_sum(1.5));
      world.all_reduce(columns(right_means.data()), avg);
      EXPECT_EQ(on_host(summed), right_sums);
      EXPECT_EQ(on_host(meant), right_means);
      EXPECT_EQ(on_host(single), counting(600, 10));
      EXPECT_EQ(here[5], 15 + 2 * 25);
    };
    with_members(3, body, {.node_memory = in_node, .nccl = false});
  }
}

// Each packs with three launches and unpacks with three: the host neither multiplies nor divides.
TEST_F(GpuBatches, MultiplyAndDivideWithTheLaunchesThatCopy) {
  for (const bool is_mean : {true, false}) {
    const int before = gpus().launches();
    with_members(2, [&](Communicator& world) { combine_hundreds(world, 0, is_mean); },
                 {.node_memory = false, .nccl = false});
    EXPECT_EQ(gpus().launches() - before, 2 * 2 * 3);
  }
  EXPECT_EQ(gpus().copies(), 2 * 2 * 300 * 2);  // by the test itself, to fill and to look
}

// Three launches of each pack and three unpack; on each GPU one combines, and none multiplies or divides only.
TEST_F(GpuBatches, MultiplyAndDivideWithTheLaunchesThatPackForLevels) {
  if (!node_memory()) GTEST_SKIP() << lacks("needs members that meet in the memory of their node");
  for (const bool is_mean : {false, true}) {
    const int before = gpus().launches();
    with_layout({"shared", {0, 0, 1, 1, 1}},
                [&](Communicator& world, int device) { combine_hundreds(world, device, is_mean); });
    EXPECT_EQ(gpus().launches() - before, 5 * 3 + 2 + 5 * 3);
  }
}

TEST_F(GpuBatches, WithFactorsAreOneOperationOfNccl) {
  with_layout({"own", {0, 1, 2}}, [&](Communicator& world, int device) { combine_hundreds(world, device, false); });
  EXPECT_EQ(nccl().operations(), 3);
  EXPECT_EQ(gpus().pinnings(), 0);
}

// With what the machine has.
TEST(RealGpuBatches, KeepTheBitsOfEachAlone) {
  if (gpu::backend() == nullptr) GTEST_SKIP() << lacks(text("needs a GPU; ", gpu::why_none()));
  const int last = gpu::backend()->devices() - 1;
  for (const bool in_node : {true, false}) {
    with_members(3,
                 [&](Communicator& world) {
                   check_many<float>(world, 0, last);
                   check_many<double>(world, 0, 0);
                   check_many<f16>(world, 0, 0);
                   check_many<bf16>(world, 0, 0);
                   check_many<std::int64_t>(world, 0, 0);
                 },
                 {.node_memory = in_node, .nccl = false});
  }
}

TEST(RealGpuBatches, KeepTheBitsLevelByLevel) {
  if (gpu::backend() == nullptr) GTEST_SKIP() << lacks(text("needs GPUs; ", gpu::why_none()));
  if (nccl::library() == nullptr) GTEST_SKIP() << lacks(text("needs NCCL; ", nccl::why_none()));
  if (gpu::backend()->devices() < 2) GTEST_SKIP() << lacks("needs two GPUs");
  with_layout({"shared", {0, 0, 1, 1}}, [](Communicator& world, int device) {
    check_many<float>(world, device, device);
    check_many<bf16>(world, device, device);
  });
}

}  // namespace
}  // namespace lockstep::test
