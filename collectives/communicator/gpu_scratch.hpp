// SPDX-License-Identifier: Apache-2.0
// Keeps GPU memory in which batches pack their tensors. It is reused, since a GPU allocates and frees slowly, and
// lives while a stream uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/communicator/staging.hpp"
#include "collectives/gpu/device_backend.hpp"

namespace lockstep::detail {

// Must be used by one thread at a time.
class GpuScratch {
 public:
  // Returns memory of at least `bytes` bytes; it is taken while the caller holds it. Throws Error out_of_memory or
  // device.
  StagingBuffer take(int device, std::size_t bytes);
  // Keeps the memory until the stream has reached the mark.
  void use_until(std::shared_ptr<gpu::StreamMark> mark, StagingBuffer memory);
  // True if a stream still uses memory of this object.
  bool is_in_use();
  // Never frees the memory that streams use. It is for failures, after which nothing is known about the streams.
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
  void drop_unused();

  std::vector<CachedMemory> kept_;  // Includes memory that callers hold.
  std::vector<StreamUse> uses_;
};

}  // namespace lockstep::detail
