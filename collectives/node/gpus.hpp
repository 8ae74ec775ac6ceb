// SPDX-License-Identifier: Apache-2.0
// GPUs that several processes of a node see: where their members' data lie there, the others map that memory and read
// and write it as their own. All know a GPU by its number in the list of those that every member sees.
#pragma once

#include <algorithm>
#include <array>
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
#include "collectives/node/events.hpp"
#include "collectives/node/symmetric_registry.hpp"

namespace lockstep::node {

// For one thread at a time.
class Gpus {
 public:
  // Of this process, by device; none where it sees no GPU.
  static std::vector<std::string> serials();
  // What every member sees, and which process it is in. Nothing, on all of them, where there is no GPU that all see.
  static std::unique_ptr<Gpus> find(const std::vector<std::vector<std::string>>& serials, int me,
                                    std::vector<std::uint64_t> processes);
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  // A GPU that not all see.
  static constexpr int unknown = -2;
  int number_of(int device) const;
  int device_of(int number) const { return number < 0 ? number : devices_.at(static_cast<std::size_t>(number)); }

  // Whether members find each other's memory, as far as they know; from the first time that they did so they know. The
  // same on all members between two calls.
  bool can_map() const { return state_ != MappingProof::refused; }
  bool is_proven() const { return state_ == MappingProof::proven; }
  void conclude(const gpu::DeviceCosts& costs);  // they do
  // A call found data there and went by the host all the same, so that they still do not know.
  bool was_left_unproven() const { return was_left_unproven_; }
  void leave_unproven() { was_left_unproven_ = was_left_unproven_ || !is_proven(); }
  void refuse_to_map();  // somebody does not
  // What work on these GPUs takes, as all agreed when they concluded; nothing until then.
  const gpu::DeviceCosts& costs() const { return costs_; }
  // Whether they find each other's events, too, by which they come one after the other on a GPU; else the host sees to
  // that.
  bool knows_of_events() const { return events_state_ != MappingProof::untried; }
  bool can_use_events() const { return events_state_ == MappingProof::proven; }
  void conclude_events(bool all_could) { events_state_ = all_could ? MappingProof::proven : MappingProof::refused; }
  // Whether somebody had data on a GPU when members asked each other where they have it.
  bool is_worth_asking() const { return in_vain_ < most_in_vain; }  // the last few times
  // The same of calls of one kind alone: between those that have data there a program may have many others.
  bool were_found(std::size_t kind) const { return still_asked_[kind % kinds] > 0; }
  void note(bool found, std::size_t kind) {
    in_vain_ = found ? 0 : in_vain_ + 1;
    std::uint8_t& times = still_asked_[kind % kinds];
    times = static_cast<std::uint8_t>(found ? most_in_vain : std::max(times - 1, 0));
  }

  // Why this member could not, for people, as the end of a sentence about the members; once. By any thread.
  void keep_reason(std::string_view why);
  bool has_reason() const { return has_reason_.load(std::memory_order_acquire); }
  std::string take_reason();

  // For the others: where this member's data lie; `card` says how to find the allocation.
  BufferAddress show(const void* data, int device, gpu::IpcMemoryHandle& card) const;
  // Another member's data, for a GPU of this process; host: for that where they are. To be copied, they may be mapped
  // there as well, where the two do not reach each other. Throws Error device where neither can.
  std::byte* reach(int member, const BufferAddress& place, const gpu::IpcMemoryHandle& card, int device,
                   bool is_copied);
  bool is_here(int member) const { return processes_[static_cast<std::size_t>(member)] == processes_[me_]; }
  // Another process's event of the GPU that all know by that number. Throws Error device.
  gpu::DeviceEvent& open(int member, const gpu::IpcEventHandle& card, int number);
  // What others have freed is unmapped now, unless it is used. CUDA waits for all that this process has on the GPU
  // then: where a call is put into a stream, which may be held back, only if it is much.
  void unmap_what_was_let_go(bool is_in_stream);
  // That process has died: nothing here waits for its events any more.
  void let_go_of(int member);
  // What is under way uses the mappings.
  void use_with(const GpuEvents& events) { events_ = &events; }

 private:
  enum class MappingProof : std::uint8_t { untried, proven, refused };
  static constexpr int most_in_vain = 8;
  static constexpr std::size_t kinds = 64;
  static constexpr std::size_t most_mapped = 64;  // of each process
  struct Mapping {
    std::uint64_t process = 0;
    std::uint64_t number = 0;  // of the allocation there
    int device = 0;
    std::byte* here = nullptr;
    std::uint64_t used = 0;  // the larger the later
  };

  Gpus() = default;
  void unmap(const Mapping& mapping) noexcept;
  void forget(std::uint64_t process, const gpu::IpcMemoryHandle& card);
  Mapping map(const gpu::IpcMemoryHandle& card, int device, int theirs);

  gpu::DeviceBackend* backend_ = nullptr;
  std::vector<int> devices_;  // by number
  std::vector<std::uint64_t> processes_;
  std::size_t me_ = 0;
  MappingProof state_ = MappingProof::untried;
  bool was_left_unproven_ = false;
  gpu::DeviceCosts costs_;
  MappingProof events_state_ = MappingProof::untried;
  const GpuEvents* events_ = nullptr;
  int in_vain_ = 0;
  std::array<std::uint8_t, kinds> still_asked_{};
  std::atomic<bool> has_reason_ = false;
  std::mutex mutex_;
  std::string reason_;
  std::vector<Mapping> mappings_;
  std::vector<Mapping> unmap_later_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<gpu::DeviceEvent>>
      opened_;  // by process and number
  std::uint64_t uses_ = 0;
};

}  // namespace lockstep::node
