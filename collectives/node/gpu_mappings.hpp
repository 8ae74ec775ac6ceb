// SPDX-License-Identifier: Apache-2.0
// Keeps the mappings of other processes' memory on GPUs, and drops those that their owners have freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/events.hpp"

namespace lockstep::node {

// Owns one member's mappings. One thread at a time may use it. The destructor unmaps everything.
class GpuMappings {
 public:
  // Keeps at most 64 mappings for each of that many processes; the least recently used one goes first.
  GpuMappings(gpu::DeviceBackend& backend, std::size_t processes)
      : backend_(backend), max_mappings_(max_per_process * processes) {}
  ~GpuMappings();
  GpuMappings(const GpuMappings&) = delete;
  GpuMappings& operator=(const GpuMappings&) = delete;

  // Returns the address of another process's allocation on `device` of this process, or, if `may_map_there`, on
  // `theirs`, the GPU that holds it. Throws Error device if neither can map it.
  std::byte* find(std::uint64_t process, const gpu::IpcMemoryHandle& handle, int device, int theirs,
                  bool may_map_there);
  // Drops all mappings at the next unmap_freed().
  void drop_all();
  // Unmaps memory that its owner has freed, unless work is under way that may use it. CUDA then waits for everything
  // that this process runs on the GPU. A call in a stream may be held back, so it unmaps only when many mappings have
  // piled up.
  void unmap_freed(bool is_in_stream);
  // Sets the events that tell if work under way still uses the mappings. The caller keeps them alive as long as this
  // object works.
  void set_events(const GpuEvents& events) { events_ = &events; }

 private:
  static constexpr std::size_t max_per_process = 64;
  // Is one mapped allocation of another process.
  struct Mapping {
    std::uint64_t process = 0;
    std::uint64_t number = 0;  // of the allocation in that process
    int device = 0;
    std::byte* here = nullptr;
    std::uint64_t used = 0;  // the larger, the later it was used
  };

  void unmap(const Mapping& mapping) noexcept { backend_.unmap(mapping.device, mapping.here); }
  void forget(std::uint64_t process, const gpu::IpcMemoryHandle& handle);
  Mapping map(const gpu::IpcMemoryHandle& handle, int device, int theirs);

  gpu::DeviceBackend& backend_;
  std::size_t max_mappings_;
  const GpuEvents* events_ = nullptr;
  std::vector<Mapping> mappings_;
  std::vector<Mapping> unmap_later_;
  std::uint64_t uses_ = 0;
};

}  // namespace lockstep::node
