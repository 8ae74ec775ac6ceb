// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs in which tensors of batches become one. It is kept for the next batch, since a GPU is slow to give
// memory and to take it back, and stays while something in a stream uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/communicator/staging.hpp"
#include "collectives/gpu/device_backend.hpp"

namespace lockstep::detail {

// For one thread at a time.
class GpuScratch {
 public:
  // At least so many bytes, for who holds it. Throws Error out_of_memory or device.
  StagingBuffer take(int device, std::size_t bytes);
  // What is in a stream until that mark uses it.
  void use_until(std::shared_ptr<gpu::StreamMark> mark, StagingBuffer memory);
  // Whether something does.
  bool is_in_use();
  // Nobody knows what becomes of what is in the streams.
  void keep_what_is_in_use();

 private:
  struct CachedMemory {
    int device = 0;
    std::size_t bytes = 0;
    StagingBuffer memory;
  };
  struct StreamUse {
    std::shared_ptr<gpu::StreamMark> mark;
    StagingBuffer memory;
  };
  void drop_some();

  std::vector<CachedMemory> kept_;  // and what somebody has
  std::vector<StreamUse> uses_;
};

}  // namespace lockstep::detail
