// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs that members take together: NCCL knows it, is given the same parts of it by all or none of it, and is
// told to forget it before it is freed.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/collectives/gpu/own_gpus.hpp"

namespace lockstep::test {
namespace {

constexpr int owners = 3;

// In place, in plans and batches; and what another communicator took is memory like any other.
TEST_F(OwnGpus, WorkInPlaceInMemoryThatNcclKnows) {
  with_members(owners, [&](Communicator& world) {
    const int rank = world.rank();
    Communicator other = world.duplicate("other");
    DeviceVector<int> known = world.allocate_on_gpu<int>(count, rank);
    for (const bool is_ours : {true, false}) {
      Communicator& on = is_ours ? world : other;
      known.copy_from(counting(count, rank));
      on.all_reduce(known, sum);
      EXPECT_EQ(on_host(known), sum_of(owners));
      known.copy_from(std::vector<int>(count, 1 << rank));
      on.all_reduce(known, bit_or);
      EXPECT_EQ(on_host(known), std::vector<int>(count, 7));
      known.copy_from(counting(count, 10'000 * rank));
      on.all_to_all(known.span().first(3000));
      for (int i = 0; i < owners; ++i)
        EXPECT_EQ(on_host(known)[static_cast<std::size_t>(1000 * i + 1)], 10'000 * i + 1000 * rank + 1);
      on.all_gather(known.span().first(3000));
      EXPECT_EQ(on_host(known)[1001], 10'000 + 1000 + 1);
      known.copy_from(counting(count, rank));
      PreparedCall plan = on.plan_all_reduce(known, sum);
      plan.run();
      EXPECT_EQ(on_host(known), sum_of(owners));
      known.copy_from(std::vector<int>(count, 1));
      Batch batch(on);
      batch.all_reduce(known.span().first(1000), sum).all_reduce(known.span().subspan(1000), sum);
      for (int turn = 0; turn < 2; ++turn) batch.run();
      EXPECT_EQ(on_host(known), std::vector<int>(count, 9));
    }
  });
  EXPECT_EQ(gpus().pinnings(), 0);
}

TEST_F(OwnGpus, FreeMemoryThatNcclKnowsWhenAllHaveDroppedIt) {
  for (const auto how : {nccl::RegistrationMode::alone, nccl::RegistrationMode::together}) {
    nccl().set_registering(how);
    DeviceVector<int> longest;
    with_members(owners, [&](Communicator& world) {
      const int rank = world.rank();
      DeviceVector<int> first = world.allocate_on_gpu<int>(count, rank);
      DeviceVector<int> second = world.allocate_on_gpu<int>(10, rank);
      world.barrier();
      EXPECT_EQ(nccl().registered(), 2 * owners);
      world.barrier();
      first = {};
      if (rank == 0) second = {};
      DeviceVector<int> third = world.allocate_on_gpu<int>(20, rank);  // the first is forgotten now
      world.barrier();
      EXPECT_EQ(nccl().registered(), 2 * owners);
      world.barrier();
      third.copy_from(counting(20, rank));
      world.all_reduce(third, sum);
      EXPECT_EQ(on_host(third)[0], 3);
      if (rank == 1) longest = std::move(third);
    });
    EXPECT_EQ(nccl().registered(), 0);
    EXPECT_EQ(gpus().living(), 1U);  // what outlives its communicator
  }
}

// What was begun before in the GPU's default stream may use it still; another stream's work is nobody's concern.
TEST_F(OwnGpus, KeepMemoryThatNcclKnowsWhileTheGpuUsesIt) {
  with_members(2, [&](Communicator& world) {
    const int rank = world.rank();
    const gpu::DeviceGuard its(rank);
    const OwnStream other(gpus(), rank);
    std::promise<void> never;
    other.put([opened = never.get_future().share()] { opened.wait(); });
    DeviceVector<int> known = world.allocate_on_gpu<int>(count, rank);
    const int* const address = known.data();
    const auto is_there = [&, address] { return gpus().where(address).on_device(); };
    std::promise<void> gate;
    gpus().put(nullptr, [opened = gate.get_future().share()] { opened.wait(); });
    known = {};
    const DeviceVector<int> second = world.allocate_on_gpu<int>(10, rank);  // NCCL has forgotten the first
    EXPECT_TRUE(is_there());
    gate.set_value();
    gpus().wait(nullptr);
    const DeviceVector<int> third = world.allocate_on_gpu<int>(10, rank);
    EXPECT_FALSE(is_there());
    never.set_value();
  });
}

// The same of what outlives its communicator.
TEST_F(OwnGpus, KeepMemoryThatNcclKnewWhileTheGpuUsesIt) {
  std::vector<DeviceVector<int>> longest(2);
  with_members(2, [&](Communicator& world) {
    longest[static_cast<std::size_t>(world.rank())] = world.allocate_on_gpu<int>(count, world.rank());
  });
  for (int rank = 0; rank < 2; ++rank) {
    const gpu::DeviceGuard its(rank);
    DeviceVector<int>& known = longest[static_cast<std::size_t>(rank)];
    bool was_there = false;
    gpus().put(nullptr, [&, address = known.data()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      was_there = gpus().where(address).on_device();
    });
    known = {};
    gpus().wait(nullptr);
    EXPECT_TRUE(was_there);
  }
}

// Of unequal counts, and of none on some.
TEST_F(OwnGpus, TakeUnequallyMuchMemoryThatNcclKnows) {
  with_members(owners, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    DeviceVector<int> known = world.allocate_on_gpu<int>(rank * 5000, world.rank());
    EXPECT_EQ(known.size(), rank * 5000);
    if (rank > 0) known.copy_from(std::vector<int>(rank * 5000, 7));
    DeviceVector<int> nothing = world.allocate_on_gpu<int>(0, world.rank());
    EXPECT_TRUE(nothing.empty());
  });
  EXPECT_EQ(nccl().ever_registered(), owners);
}

TEST_F(OwnGpus, TakeMemoryLikeAnyOtherWhereNcclIsNotUsed) {
  const auto body = [&](Communicator& world) {
    for (int turn = 0; turn < 2; ++turn) {
      const int device = world.rank() % 2;
      DeviceVector<int> known = world.allocate_on_gpu<int>(count, device);
      EXPECT_EQ(gpus().where(known.data()).device, device);
      known.copy_from(counting(count, world.rank()));
      world.all_reduce(known, sum);
      EXPECT_EQ(on_host(known), sum_of(world.size()));
    }
  };
  with_members(3, body);  // two share one
  with_members(2, body, {.nccl = false});
  nccl().set_registering(nccl::RegistrationMode::none);
  with_members(2, body);
  nccl().set_registering(nccl::RegistrationMode::together);
  with_members(2, [&](Communicator& world) {  // on another GPU than before
    DeviceVector<int> before(std::vector<int>(count, 1), world.rank());
    world.all_reduce(before, sum);
    const DeviceVector<int> elsewhere = world.allocate_on_gpu<int>(count, 1 - world.rank());
    EXPECT_EQ(gpus().where(elsewhere.data()).device, 1 - world.rank());
  });
  EXPECT_EQ(nccl().ever_registered(), 0);
}

// Nobody has it where one cannot, and all go on.
TEST_F(OwnGpus, TakeNoMemoryWhereOneGetsNone) {
  for (const bool by_nccl : {true, false}) {
    std::atomic<int> refused = 0;
    with_members(owners,
                 [&](Communicator& world) {
                   const int rank = world.rank();
                   for (int turn = 0; turn < 3; ++turn) {
                     if (rank == 1 && turn == 0) FakeGpus::fail_allocation_after(0);
                     try {
                       const DeviceVector<int> known =
                           world.allocate_on_gpu<int>(count, turn == 1 && rank == 2 ? 99 : rank);
                       EXPECT_EQ(turn, 2);
                     } catch (const Error& error) {
                       EXPECT_EQ(error.code(), turn == 0 ? Code::out_of_memory : Code::device) << error.what();
                       EXPECT_NE(error.detail().find(turn == 0 ? "rank 1: allocating" : "rank 2: memory of GPU 99"),
                                 std::string_view::npos)
                           << error.what();
                       ++refused;
                     }
                     FakeGpus::fail_allocation_after(-1);
                   }
                   DeviceVector<int> there(counting(count, rank), rank);
                   world.all_reduce(there, sum);
                   EXPECT_EQ(on_host(there), sum_of(owners));
                 },
                 {.nccl = by_nccl});
    EXPECT_EQ(refused, 2 * owners);
  }
}

// NCCL's own failure is one as in any other call.
TEST_F(OwnGpus, ReportMemoryThatNcclRefuses) {
  for (const int calls_before : {0, 1}) {  // allocating, and making it known
    std::atomic<int> refused = 0;
    with_members(owners, [&](Communicator& world) {
      DeviceVector<int> there(counting(count, world.rank()), world.rank());
      world.all_reduce(there, sum);
      if (world.rank() == 1) FakeNccl::fail_after(calls_before);
      try {
        const DeviceVector<int> known = world.allocate_on_gpu<int>(count, world.rank());
        world.barrier();
      } catch (const Error& error) {
        EXPECT_NE(error.detail().find("unhandled system error"), std::string_view::npos) << error.what();
        EXPECT_EQ(world.failed(), calls_before > 0);
        ++refused;
      }
      FakeNccl::fail_after(-1);
    });
    EXPECT_EQ(refused, owners);
  }
}

}  // namespace
}  // namespace lockstep::test
