// SPDX-License-Identifier: Apache-2.0
// Keeps the buffers of a row in a GPU's memory, and runs NCCL's own operation on them as a baseline.
#pragma once

#include <memory>

#include "bench/buffers.hpp"
#include "bench/measure.hpp"
#include "collectives/gpu/memory.hpp"

namespace lockstep::bench {

// Mirrors a member's host buffers in the memory of its GPU. All members make it together. If one member lacks the
// memory, the constructor fails on all.
class GpuBuffers {
 public:
  GpuBuffers(Communicator& world, Buffers& buffers, int device);

  std::span<const std::byte> input() const { return {there(host_input_.data()), host_input_.size()}; }
  std::span<std::byte> output() const { return {there(host_output_.data()), host_output_.size()}; }
  detail::CallRequest request() const;
  // Copy from the host's buffers to the GPU, and the result back.
  void take();
  void give_back();
  // Copies within this GPU's memory: copy() waits for the end, copying() only puts the copy into a stream.
  BenchCandidate copy(std::size_t bytes);
  std::function<void(gpu::Stream)> copying(std::size_t bytes);
  // Wraps an operation on the host's buffers with a copy down to pinned memory and a copy up. A program with a library
  // without GPU support has to do the same. It copies as many bytes as the buffers have, but not the buffers
  // themselves.
  BenchCandidate staged(BenchCandidate by_host);
  int device() const { return device_; }

 private:
  std::byte* there(const std::byte* here) const;

  Buffers& buffers_;
  int device_;
  std::span<const std::byte> host_input_;
  std::span<std::byte> host_output_;
  bool is_one_ = false;  // the input and the output overlap
  const std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceVector<std::byte> input_;
  DeviceVector<std::byte> output_;
  DeviceVector<std::byte> copied_;
};

// Runs NCCL's own operations, on a NCCL communicator beside Lockstep's.
class NcclBaseline {
 public:
  // Returns nothing if a member has no NCCL, or if two members share a GPU. Sharing works only if NCCL (2.30 or later)
  // is allowed to do it by NCCL_MULTI_RANK_GPU_ENABLE. All members call it.
  static std::shared_ptr<NcclBaseline> make(Communicator& world, int device);
  virtual ~NcclBaseline() = default;
  // Returns a candidate that puts the operation into a stream and waits for it; nothing if NCCL has no such operation.
  virtual std::optional<BenchCandidate> candidate(const Subject& subject, const GpuBuffers& on) = 0;
  // Returns a function that puts the operation into a stream; an empty one if NCCL has no such operation.
  virtual std::function<void(gpu::Stream)> operation(const Subject& subject, const GpuBuffers& on) = 0;
};

// Returns the GPU of this member: its position among the members of its node selects it. Throws Error device on all
// members if one of them sees no GPU.
int choose_gpu(Communicator& world);

}  // namespace lockstep::bench
