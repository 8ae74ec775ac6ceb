// SPDX-License-Identifier: Apache-2.0
// Copies data that a call cannot use in place into staging memory before the call, and back after it. That is data
// with gaps, or data in GPU memory if the members do not share the node's memory.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/buffers.hpp"
#include "collectives/gpu/device_backend.hpp"

namespace lockstep::detail {

// Changes elements while they are copied in or back.
struct CopyTransform {
  DataType type = DataType::opaque;
  bool scales = false;
  double factor = 1;
  std::int64_t divisor = 0;  // Zero does not divide.
  bool changes() const { return scales || divisor != 0; }
};

// Pairs a buffer with its staging memory. It owns neither.
struct StagingCopy {
  BufferView data;
  std::byte* staged;
  std::size_t element_bytes;
  gpu::MemoryLocation where = {};  // Tells where the data is.
  CopyTransform transform = {};
};

// Returns the host for empty data.
inline gpu::MemoryLocation where_is(const BufferView& data) {
  return data.count > 0 ? gpu::where(data.data) : gpu::MemoryLocation{};
}

// True if the call can't use the data in place. `reaches_gpus` is true if the call can use GPU memory.
inline bool needs_staging(const BufferView& data, gpu::MemoryLocation where, bool reaches_gpus = false) {
  return data.count > 0 && (!data.contiguous() || (where.on_device() && !reaches_gpus));
}

// Owns staging memory.
using StagingBuffer = std::shared_ptr<std::byte>;

// Allocates staging memory. `for_gpu` pins it, so that GPUs copy at full speed.
StagingBuffer make_staging_buffer(std::size_t bytes, bool for_gpu);

// Copy to and from staging memory, on GPUs too, many buffers at once. They are done when they return.
void copy_in(std::span<const StagingCopy> copies);
void copy_back(std::span<const StagingCopy> copies);
// Start copies between data in a GPU's memory and one stretch of the same memory, in a stream of that GPU.
void begin_copy_in(std::span<const StagingCopy> copies, gpu::Stream stream);
void begin_copy_back(std::span<const StagingCopy> copies, gpu::Stream stream);

}  // namespace lockstep::detail
