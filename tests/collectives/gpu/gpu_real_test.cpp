// SPDX-License-Identifier: Apache-2.0
// What only a real GPU answers, by CUDA's own calls beside ours: kernels of a program's own, memory that is freed while
// somebody counts on it, streams that are held back, and a device that is reset. Skipped, aloud, where there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "collectives/nccl/library.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/own_kernel.hpp"
#include "tests/collectives/gpu/real_gpu.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t many = 300'000;

class RealOwnKernel : public RealGpu {};
class RealFreed : public RealGpu {};
class RealStreams : public RealGpu {};
class RealReset : public RealGpu {};

std::vector<Affine> affines(std::size_t count, std::uint32_t seed) {
  std::vector<Affine> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    all[i] = {2 * number + 2 * seed + 1, 7 * number + seed};
  }
  return all;
}

// Else an order would show nothing.
TEST(OwnKernel, IsOfAFunctionThatHasAnOrder) {
  const auto all = affines(100, 1);
  const auto others = affines(100, 2);
  for (std::size_t i = 1; i + 1 < all.size(); ++i) {
    EXPECT_NE(after(all[i], others[i]), after(others[i], all[i])) << i;
    EXPECT_EQ(after(after(all[i - 1], others[i]), all[i + 1]), after(all[i - 1], after(others[i], all[i + 1]))) << i;
  }
}

TEST_F(RealOwnKernel, IsLaunchedOnItsGpuAndStream) {
  const int device = gpu::backend()->devices() - 1;
  const auto left = affines(many, 1);
  const auto right = affines(many, 2);
  const DeviceVector<Affine> left_there(left, device);
  const DeviceVector<Affine> right_there(right, device);
  DeviceVector<Affine> out(many, device);
  const gpu::Stream stream = gpu::backend()->make_stream(device);
  gpu::backend()->begin_own(device, [&] {
    int current = -1;
    well(cudaGetDevice(&current));
    EXPECT_EQ(current, device);
    launch_after(left_there.data(), right_there.data(), out.data(), many, stream);
  });
  gpu::backend()->wait(stream);
  std::vector<Affine> found(many);
  out.copy_to(found);
  for (std::size_t i = 0; i < many; ++i) ASSERT_EQ(found[i], after(left[i], right[i])) << i;
  gpu::backend()->end_stream(device, stream);
}

TEST_F(RealOwnKernel, ThatCudaRefusesIsAnErrorAndNoMore) {
  DeviceVector<Affine> data(many, 0);
  const gpu::Stream stream = gpu::backend()->make_stream(0);
  const auto launch = [&](unsigned threads) {
    gpu::backend()->begin_own(0, [&] { launch_after(data.data(), data.data(), data.data(), many, stream, threads); });
  };
  constexpr unsigned too_many = 5000;
  EXPECT_THROW(launch(too_many), Error);
  EXPECT_NO_THROW(launch(256)) << "the error before is not its";
  gpu::backend()->wait(stream);
  gpu::backend()->end_stream(0, stream);
}

// By NCCL's messages and launches on each member's GPU; and where CUDA refuses one on a member, all have the error.
TEST_F(RealOwnKernel, CombinesInTheMembersOrder) {
  const int devices = std::min(gpu::backend()->devices(), 4);
  if (devices < 2) GTEST_SKIP() << lacks("needs two GPUs");
  if (nccl::library() == nullptr) GTEST_SKIP() << lacks("needs NCCL; " + nccl::why_none());
  for (const bool is_refused : {false, true}) {
    with_members(devices, [&](Communicator& world) {
      const unsigned threads = is_refused && world.rank() == 1 ? 5000 : 256;
      const auto op =
          ordered(after).on_gpu([=](const Affine* left, const Affine* right, Affine* out, std::size_t count,
                                    void* stream) { launch_after(left, right, out, count, stream, threads); });
      DeviceVector<Affine> data(affines(many, static_cast<std::uint32_t>(world.rank())), world.rank());
      if (is_refused) {
        EXPECT_THROW(world.all_reduce(data, op), Error);
        return;
      }
      world.all_reduce(data, op);
      std::vector<Affine> right = affines(many, 0);
      for (int rank = 1; rank < world.size(); ++rank) {
        const auto next = affines(many, static_cast<std::uint32_t>(rank));
        for (std::size_t i = 0; i < many; ++i) right[i] = after(right[i], next[i]);
      }
      std::vector<Affine> found(many);
      data.copy_to(found);
      EXPECT_EQ(found, right);
    });
  }
}

// A copy from there by an address alone ends the process, as the driver takes it for the host's: so who begins a call
// looks.
TEST_F(RealFreed, IsNotKnownAnyMore) {
  Plain data(many);
  const std::int32_t* const address = data.span().data();
  EXPECT_EQ(gpu::where(address).device, 0);
  data.free();
  EXPECT_EQ(gpu::where(address), gpu::MemoryLocation{});
}

TEST_F(RealFreed, IsNamedByAPlanThatHasIt) {
  with_members(3, [&](Communicator& world) {
    Plain data(many);
    auto plan = world.plan_all_reduce(data.span(), sum);
    plan.run();
    world.barrier();
    if (world.rank() == 1) data.free();
    try {
      plan.run();
      ADD_FAILURE() << "rank " << world.rank() << " was told nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), world.rank() == 1 ? Code::usage : Code::peer_failed) << error.what();
      EXPECT_PRED2(holds, error.what(), "the input of a planned all_reduce at ");
    }
  });
}

TEST_F(RealStreams, ThatAreHeldBackKeepTheirOrder) {
  for (const int members : {2, 4}) {
    with_members(members, [](Communicator& world) {
      for (const Collective collective : moved_or_reduced) {
        for (const std::size_t block : {std::size_t{7}, std::size_t{50'000}}) {
          for (const int late : {0, world.size() - 1}) expect_order_by_cuda(world, collective, late, block);
        }
      }
    });
  }
}

// In a process of its own, which ends: with the right result, with an error that says something, or with a signal,
// which is what must not be. What it was is printed.
void all_reduce_after_a_reset() {
  const auto reduce = [](Communicator& world) {
    DeviceVector<int> data(std::vector<int>(many, 1));
    world.all_reduce(data, sum);
    std::vector<int> found(many);
    data.copy_to(found);
    if (found != std::vector<int>(many, world.size())) throw Error(Code::internal, "the result is wrong");
  };
  run_members(2, reduce, {}, short_limits, Log(LogLevel::off));
  std::cerr << "cudaDeviceReset: " << cudaGetErrorString(cudaDeviceReset()) << '\n';
  try {
    run_members(2, reduce, {}, short_limits, Log(LogLevel::off));
    std::cerr << "after it: right\n";
  } catch (const Error& error) {
    std::cerr << "after it: " << error.what() << '\n';
    if (error.code() == Code::internal) std::_Exit(1);
  }
  std::_Exit(0);
}

TEST_F(RealReset, IsSurvivedOrSaid) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(all_reduce_after_a_reset(), testing::ExitedWithCode(0), "after it: ");
}

}  // namespace
}  // namespace lockstep::test
