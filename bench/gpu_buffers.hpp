// SPDX-License-Identifier: Apache-2.0
// Rows in a GPU's memory: the same buffers there, and NCCL's own operation on them to measure against.
#pragma once

#include <memory>

#include "bench/buffers.hpp"
#include "bench/measure.hpp"
#include "collectives/gpu/memory.hpp"

namespace lockstep::bench {

// What a member's buffers of the host are on its GPU. All members make it; where one has not the memory all are
// refused.
class GpuBuffers {
 public:
  enum class GpuAllocation : std::uint8_t { own, symmetric };  // as DeviceVector takes it, or allocate_on_gpu
  GpuBuffers(Communicator& world, Buffers& buffers, int device, GpuAllocation memory = GpuAllocation::own);

  std::span<const std::byte> input() const { return {there(host_input_.data()), host_input_.size()}; }
  std::span<std::byte> output() const { return {there(host_output_.data()), host_output_.size()}; }
  detail::CallRequest request() const;
  // From the host's buffers, and the result back to them.
  void take();
  void give_back();
  // Between two parts of this GPU's memory, waited for; and put into a stream.
  BenchCandidate copy(std::size_t bytes);
  std::function<void(gpu::Stream)> copying(std::size_t bytes);
  // What is done with the host's buffers, with a copy down to pinned memory before it and one up after it, as a program
  // has to do whose library does not know GPUs. What is copied are not the buffers themselves, but as many bytes.
  BenchCandidate staged(BenchCandidate by_host);
  int device() const { return device_; }

 private:
  std::byte* there(const std::byte* here) const;

  Buffers& buffers_;
  int device_;
  std::span<const std::byte> host_input_;
  std::span<std::byte> host_output_;
  bool is_one_ = false;  // input and output lie in each other
  const std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceVector<std::byte> input_;
  DeviceVector<std::byte> output_;
  DeviceVector<std::byte> copied_;
};

// A group of NCCL's own, beside ours.
class NcclBaseline {
 public:
  // All members call it. Nothing where one of them has no NCCL, or two share a GPU, unless NCCL is permitted and able
  // to bear that (NCCL_MULTI_RANK_GPU_ENABLE, from 2.30 on).
  static std::shared_ptr<NcclBaseline> make(Communicator& world, int device);
  virtual ~NcclBaseline() = default;
  // Put into a stream and waited for, once; nothing where NCCL has no such operation.
  virtual std::optional<BenchCandidate> candidate(const Subject& subject, const GpuBuffers& on) = 0;
  // Put into a stream; empty where NCCL has no such operation.
  virtual std::function<void(gpu::Stream)> operation(const Subject& subject, const GpuBuffers& on) = 0;
};

// Which GPU a member takes: that of its place among those on its node. Throws Error device on all members where one of
// them sees none.
int choose_gpu(Communicator& world);

}  // namespace lockstep::bench
