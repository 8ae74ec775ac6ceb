// SPDX-License-Identifier: Apache-2.0
// Finds the GPU memory and events of other processes of the node. Every member reads and writes the others' data there
// as its own. The members share a numbering of GPUs: a GPU's number is its position in the list of those that all see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/gpu_agreement.hpp"
#include "collectives/node/gpu_mappings.hpp"
#include "collectives/node/symmetric_registry.hpp"

namespace lockstep::node {

// Keeps the reason why this member could not map or open something, for people: the end of a sentence about the
// members. Any thread may call it.
class FailureReason {
 public:
  void keep(std::string_view why);
  bool is_known() const { return is_known_.load(std::memory_order_acquire); }
  // Returns the reason once.
  std::string take();

 private:
  std::atomic<bool> is_known_ = false;
  std::mutex mutex_;
  std::string reason_;
};

// Translates between this member's GPUs and those of the others, and keeps the opened events. One thread at a time may
// use it, except for failure().
class Gpus {
 public:
  // Returns the identity of each GPU of this process, by device; empty if there is none or one cannot be identified.
  static std::vector<std::string> serials();
  // Returns the GPUs that all members see, or null on all members if there is no such GPU. `serials` holds each
  // member's serials(), `processes` a number for each member's process, and `me` is this member's index.
  static std::unique_ptr<Gpus> find(const std::vector<std::vector<std::string>>& serials, int me,
                                    std::vector<std::uint64_t> processes);
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  // Is the number of a GPU that not every member sees.
  static constexpr int unknown = -2;
  // Return the shared number of a device of this process (or `unknown`), and the device of this process with a shared
  // number. The latter returns a negative number, such as that of the host, as it is.
  int number_of(int device) const;
  int device_of(int number) const { return number < 0 ? number : devices_.at(static_cast<std::size_t>(number)); }
  // True if the member is a thread of this process.
  bool is_here(int member) const { return processes_[static_cast<std::size_t>(member)] == processes_[me_]; }

  GpuAgreement& agreement() { return agreement_; }
  const GpuAgreement& agreement() const { return agreement_; }
  GpuQueryHistory& queries() { return queries_; }
  FailureReason& failure() { return failure_; }
  GpuMappings& mappings() { return mappings_; }
  // Records that some member cannot map. All mappings are dropped at the next GpuMappings::unmap_freed().
  void refuse_to_map();

  // Returns the address of this member's data for the others, and fills `handle` with the handle of their allocation.
  // The address has memory 0 if others cannot map it.
  BufferAddress export_address(const void* data, int device, gpu::IpcMemoryHandle& handle) const;
  // Returns the address at which `device` of this process reaches another member's data; a negative `device` (the host)
  // stands for the GPU that holds them. Copies may also use a mapping on that GPU, since the two GPUs may have no
  // access to each other (`is_copied`). The mapping stays owned by mappings(). Throws Error device if neither can map
  // it.
  std::byte* reach(int member, const BufferAddress& place, const gpu::IpcMemoryHandle& handle, int device,
                   bool is_copied);
  // Returns another process's event on the GPU with this number. This object owns the event. Throws Error device if it
  // cannot be opened.
  gpu::DeviceEvent& open(int member, const gpu::IpcEventHandle& handle, int number);
  // Releases all waits here for the events of a member that has died.
  void release_waits_for(int member);

 private:
  Gpus(std::size_t me, std::vector<std::uint64_t> processes, std::vector<int> devices);

  gpu::DeviceBackend& backend_;
  std::size_t me_;
  std::vector<std::uint64_t> processes_;
  std::vector<int> devices_;  // of this process, by shared number
  GpuAgreement agreement_;
  GpuQueryHistory queries_;
  FailureReason failure_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<gpu::DeviceEvent>>
      opened_;  // by process and number
  GpuMappings mappings_;
};

}  // namespace lockstep::node
