// SPDX-License-Identifier: Apache-2.0
// Memory that stands for data which a call cannot work on where it lies: data that is not contiguous, or that is in a
// GPU's memory where members do not meet in the node's. It is copied there before the call, and back after it.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/buffers.hpp"
#include "collectives/gpu/device_backend.hpp"

namespace lockstep::detail {

// What happens to elements while they are copied in, or back.
struct CopyTransform {
  DataType type = DataType::opaque;
  bool scales = false;
  double factor = 1;
  std::int64_t divisor = 0;  // 0: none
  bool changes() const { return scales || divisor != 0; }
};

struct StagingCopy {
  BufferView data;
  std::byte* staged;
  std::size_t element_bytes;
  gpu::MemoryLocation where = {};  // of the data
  CopyTransform transform = {};
};

inline gpu::MemoryLocation where_is(const BufferView& data) {
  return data.count > 0 ? gpu::where(data.data) : gpu::MemoryLocation{};
}

// `reaches_gpus`: the call can work on what is in their memory.
inline bool needs_staging(const BufferView& data, gpu::MemoryLocation where, bool reaches_gpus = false) {
  return data.count > 0 && (!data.contiguous() || (where.on_device() && !reaches_gpus));
}

using StagingBuffer = std::shared_ptr<std::byte>;

// `for_gpu`: pinned, so that GPUs copy at full speed.
StagingBuffer make_staging_buffer(std::size_t bytes, bool for_gpu);

// In GPUs' memory as well, there many at once; done when they return.
void copy_in(std::span<const StagingCopy> copies);
void copy_back(std::span<const StagingCopy> copies);
// The same between data in a GPU's memory and one stretch of memory there: put into a stream of that GPU.
void begin_copy_in(std::span<const StagingCopy> copies, gpu::Stream stream);
void begin_copy_back(std::span<const StagingCopy> copies, gpu::Stream stream);

}  // namespace lockstep::detail
