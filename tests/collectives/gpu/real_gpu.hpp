// SPDX-License-Identifier: Apache-2.0
// What a program has that knows CUDA only, for tests with a real GPU: memory, streams, and what holds them back; and
// calls in such streams, whose order shows.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/gpu/stream_order.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {

inline void well(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// As in every program that has something in streams: the GPU is in use before a communicator is made, which then has
// all that it will launch there.
inline void use_gpu() { well(cudaFree(nullptr)); }

class RealGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu::backend() == nullptr) GTEST_SKIP() << lacks("needs a GPU; " + gpu::why_none());
    use_gpu();
  }
};

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

// Apart from the default stream, unless it is told to be an ordinary one.
class CudaStream {
 public:
  explicit CudaStream(unsigned flags = cudaStreamNonBlocking) { well(cudaStreamCreateWithFlags(&stream_, flags)); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { well(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// As expect_order, with CUDA's own copies in place of what the tests' GPUs do: all calls have returned before any
// stream goes on; the data come only then, and are overwritten behind the call. CUDA frees memory only when all that a
// process has on the GPU is done: no thread may do so while another one's stream is held back.
inline void expect_order_by_cuda(Communicator& world, Collective collective, int late, std::size_t block) {
  const std::size_t count = block * static_cast<std::size_t>(world.size());
  const Numbers first = counting(count, 1000 * world.rank());
  Numbers right_in = first;
  Numbers right_out(count, -1);
  call(collective, world, std::span(right_in), std::span(right_out));
  world.barrier();  // all have freed what the turn before took
  const CudaStream stream;
  const Pinned given(first);
  const Plain in(count);
  const Plain out(count);
  const Pinned nothing(Numbers(count, -1));
  const Pinned other(Numbers(count, -2));
  Pinned found_in(Numbers(count, 0));
  Pinned found_out(Numbers(count, 0));
  world.barrier();
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
  stream.wait();
  EXPECT_EQ(found_in.values(), right_in) << to_string(collective) << ", " << late << " is late";
  EXPECT_EQ(found_out.values(), right_out) << to_string(collective) << ", " << late << " is late";
}

}  // namespace lockstep::test
