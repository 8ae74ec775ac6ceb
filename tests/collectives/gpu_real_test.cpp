// SPDX-License-Identifier: Apache-2.0
// What only a real GPU answers, by CUDA's own calls beside ours: kernels of a program's own, memory that is freed while
// somebody counts on it, streams that are held back, and a device that is reset. Skipped, aloud, where there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <iostream>
#include <optional>
#include <thread>

#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/library.hpp"
#include "tests/collectives/members.hpp"
#include "tests/collectives/own_kernel.hpp"
#include "tests/collectives/stream_order.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t many = 300'000;

void well(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

class RealGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu::layer() == nullptr) GTEST_SKIP() << lacks("needs a GPU; " + gpu::why_none());
  }
};
class RealOwnKernel : public RealGpu {};
class RealFreed : public RealGpu {};
class RealStreams : public RealGpu {};
class RealReset : public RealGpu {};

// Memory as a program has it that knows CUDA only.
class Plain {
 public:
  explicit Plain(std::size_t count) : count_(count) { well(cudaMalloc(&data_, count * sizeof(std::int32_t))); }
  ~Plain() { free(); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  void free() { cudaFree(std::exchange(data_, nullptr)); }
  std::span<std::int32_t> span() const { return {static_cast<std::int32_t*>(data_), count_}; }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

// What streams copy without the host.
class Pinned {
 public:
  explicit Pinned(const Numbers& values) : count_(values.size()) {
    well(cudaMallocHost(&data_, count_ * sizeof(std::int32_t)));
    std::ranges::copy(values, static_cast<std::int32_t*>(data_));
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  void put_into(std::span<std::int32_t> there, cudaStream_t stream) const {
    well(cudaMemcpyAsync(there.data(), data_, count_ * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream));
  }
  void take_from(std::span<const std::int32_t> there, cudaStream_t stream) {
    well(cudaMemcpyAsync(data_, there.data(), count_ * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream));
  }
  Numbers values() const { return {static_cast<std::int32_t*>(data_), static_cast<std::int32_t*>(data_) + count_}; }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

std::vector<Affine> affines(std::size_t count, std::uint32_t seed) {
  std::vector<Affine> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    all[i] = {2 * number + 2 * seed + 1, 7 * number + seed};
  }
  return all;
}

// Else an order would show nothing.
TEST(OwnKernel, is_of_a_function_that_has_an_order) {
  const auto all = affines(100, 1);
  const auto others = affines(100, 2);
  for (std::size_t i = 1; i + 1 < all.size(); ++i) {
    EXPECT_NE(after(all[i], others[i]), after(others[i], all[i])) << i;
    EXPECT_EQ(after(after(all[i - 1], others[i]), all[i + 1]), after(all[i - 1], after(others[i], all[i + 1]))) << i;
  }
}

TEST_F(RealOwnKernel, is_launched_on_its_gpu_and_stream) {
  const int device = gpu::layer()->devices() - 1;
  const auto left = affines(many, 1);
  const auto right = affines(many, 2);
  const DeviceVector<Affine> left_there(left, device);
  const DeviceVector<Affine> right_there(right, device);
  DeviceVector<Affine> out(many, device);
  const gpu::Stream stream = gpu::layer()->make_stream(device);
  gpu::layer()->begin_own(device, [&] {
    int current = -1;
    well(cudaGetDevice(&current));
    EXPECT_EQ(current, device);
    launch_after(left_there.data(), right_there.data(), out.data(), many, stream);
  });
  gpu::layer()->wait(stream);
  std::vector<Affine> found(many);
  out.copy_to(found);
  for (std::size_t i = 0; i < many; ++i) ASSERT_EQ(found[i], after(left[i], right[i])) << i;
  gpu::layer()->end_stream(device, stream);
}

TEST_F(RealOwnKernel, that_cuda_refuses_is_an_error_and_no_more) {
  DeviceVector<Affine> data(many, 0);
  const gpu::Stream stream = gpu::layer()->make_stream(0);
  const auto launch = [&](unsigned threads) {
    gpu::layer()->begin_own(0, [&] { launch_after(data.data(), data.data(), data.data(), many, stream, threads); });
  };
  constexpr unsigned too_many = 5000;
  EXPECT_THROW(launch(too_many), Error);
  EXPECT_NO_THROW(launch(256)) << "the error before is not its";
  gpu::layer()->wait(stream);
  gpu::layer()->end_stream(0, stream);
}

// By NCCL's messages and launches on each member's GPU; and where CUDA refuses one on a member, all have the error.
TEST_F(RealOwnKernel, combines_in_the_members_order) {
  const int devices = std::min(gpu::layer()->devices(), 4);
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

TEST_F(RealFreed, is_not_known_any_more) {
  Plain data(many);
  const std::int32_t* const address = data.span().data();
  EXPECT_EQ(gpu::where(address).device, 0);
  data.free();
  EXPECT_EQ(gpu::where(address), gpu::Where{});
  DeviceVector<std::byte> target(many);
  EXPECT_THROW(gpu::copy(0, target.data(), reinterpret_cast<const std::byte*>(address), many), Error)
      << "cudaMemcpyAsync refuses what is not there";
}

TEST_F(RealFreed, is_named_by_a_plan_that_has_it) {
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
      EXPECT_NE(std::string_view(error.what()).find("the input of a planned all_reduce at "), std::string_view::npos)
          << error.what();
    }
  });
}

// What comes into the stream behind it waits until it is opened, which its end does as well.
class HostGate {
 public:
  HostGate() = default;
  ~HostGate() { open(); }
  HostGate(const HostGate&) = delete;
  HostGate& operator=(const HostGate&) = delete;
  void hold(cudaStream_t stream) {
    well(cudaLaunchHostFunc(
        stream, [](void* opened) { static_cast<std::shared_future<void>*>(opened)->wait(); }, &opened_));
  }
  void open() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }

 private:
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool is_open_ = false;
};

class CudaStream {
 public:
  CudaStream() { well(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// As expect_order, with CUDA's own copies in place of what the tests' GPUs do: all calls have returned before any
// stream goes on; the data come only then, and are overwritten behind the call.
void expect_order_by_cuda(Communicator& world, Collective collective, int late, std::size_t block) {
  const std::size_t count = block * static_cast<std::size_t>(world.size());
  Numbers right_in = numbers_from(count, 1000 * world.rank());
  Numbers right_out(count, -1);
  const Pinned given(right_in);
  call(collective, world, std::span(right_in), std::span(right_out));
  const CudaStream stream;
  const Plain in(count);
  const Plain out(count);
  const Pinned nothing(Numbers(count, -1));
  const Pinned other(Numbers(count, -2));
  Pinned found_in(Numbers(count, 0));
  Pinned found_out(Numbers(count, 0));
  HostGate gate;
  gate.hold(stream.get());
  given.put_into(in.span(), stream.get());
  nothing.put_into(out.span(), stream.get());
  call(collective, world.on(stream.get()), in.span(), out.span());
  found_in.take_from(in.span(), stream.get());
  found_out.take_from(out.span(), stream.get());
  other.put_into(in.span(), stream.get());
  other.put_into(out.span(), stream.get());
  world.barrier();
  if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gate.open();
  well(cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(found_in.values(), right_in) << to_string(collective) << ", " << late << " is late";
  EXPECT_EQ(found_out.values(), right_out) << to_string(collective) << ", " << late << " is late";
}

TEST_F(RealStreams, that_are_held_back_keep_their_order) {
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
  run_members(2, reduce, {}, short_patience, Log(LogLevel::off));
  std::cerr << "cudaDeviceReset: " << cudaGetErrorString(cudaDeviceReset()) << '\n';
  try {
    run_members(2, reduce, {}, short_patience, Log(LogLevel::off));
    std::cerr << "after it: right\n";
  } catch (const Error& error) {
    std::cerr << "after it: " << error.what() << '\n';
    if (error.code() == Code::internal) std::_Exit(1);
  }
  std::_Exit(0);
}

TEST_F(RealReset, is_survived_or_said) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(all_reduce_after_a_reset(), testing::ExitedWithCode(0), "after it: ");
}

}  // namespace
}  // namespace lockstep::test
