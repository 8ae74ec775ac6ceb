// SPDX-License-Identifier: Apache-2.0
// Finds and maps the GPU memory of other processes of the node. Every member reads and writes the others' data there as
// its own. The members share a numbering of GPUs: a GPU's number is its position in the list of those that all see.
//
// The room owns it. Mappings stay from call to call, because opening one takes as long as many copies.
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

// Keeps one member's mappings, opened events and knowledge about them. One thread at a time may use it, except where a
// function says otherwise. The destructor unmaps everything.
class Gpus {
 public:
  // Returns the identity of each GPU of this process, by device; empty if there is none or one cannot be identified.
  static std::vector<std::string> serials();
  // Returns the GPUs that all members see, or null on all members if there is no such GPU. `serials` holds each
  // member's serials(), `processes` a number for each member's process, and `me` is this member's index.
  static std::unique_ptr<Gpus> find(const std::vector<std::vector<std::string>>& serials, int me,
                                    std::vector<std::uint64_t> processes);
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  // Is the number of a GPU that not every member sees.
  static constexpr int unknown = -2;
  // Return the shared number of a device of this process (or `unknown`), and the device of this process with a shared
  // number. The latter returns a negative number, such as that of the host, as it is.
  int number_of(int device) const;
  int device_of(int number) const { return number < 0 ? number : devices_.at(static_cast<std::size_t>(number)); }

  // False once a member could not map another's memory. Until the first attempt members assume that they can. Between
  // two calls the answer is the same on all members.
  bool can_map() const { return state_ != MappingProof::refused; }
  // True after all members have mapped each other's memory once.
  bool is_proven() const { return state_ == MappingProof::proven; }
  // Records that all members can map, and the costs on which they agreed.
  void conclude(const gpu::DeviceCosts& costs);
  // True if a call found data on a GPU and still went by the host, so that no mapping has been tried.
  bool was_left_unproven() const { return was_left_unproven_; }
  void leave_unproven() { was_left_unproven_ = was_left_unproven_ || !is_proven(); }
  // Records that some member cannot map. All mappings are dropped at the next unmap_what_was_let_go().
  void refuse_to_map();
  // Returns the measured costs of work on these GPUs, the same on all members; zeros until conclude().
  const gpu::DeviceCosts& costs() const { return costs_; }
  // True if members have tried to open each other's events, and if all succeeded. With events the GPUs wait for each
  // other; without them the hosts keep the order.
  bool knows_of_events() const { return events_state_ != MappingProof::untried; }
  bool can_use_events() const { return events_state_ == MappingProof::proven; }
  void conclude_events(bool all_could) { events_state_ = all_could ? MappingProof::proven : MappingProof::refused; }
  // False if the last few questions for the location of buffers found none on a GPU.
  bool is_worth_asking() const { return in_vain_ < most_in_vain; }
  // True if one of the last few questions by calls of this kind found a buffer on a GPU. Between such calls a program
  // may make many others, so each kind is counted on its own.
  bool were_found(std::size_t kind) const { return still_asked_[kind % kinds] > 0; }
  // Records the answer to one question by a call of this kind.
  void note(bool found, std::size_t kind) {
    in_vain_ = found ? 0 : in_vain_ + 1;
    std::uint8_t& times = still_asked_[kind % kinds];
    times = static_cast<std::uint8_t>(found ? most_in_vain : std::max(times - 1, 0));
  }

  // Keeps the reason why this member could not map or open, for people: the end of a sentence about the members.
  // take_reason() returns it once. Any thread may call these three.
  void keep_reason(std::string_view why);
  bool has_reason() const { return has_reason_.load(std::memory_order_acquire); }
  std::string take_reason();

  // Returns the address of this member's data for the others, and fills `card` with the handle of their allocation. The
  // address has memory 0 if others cannot map it.
  BufferAddress show(const void* data, int device, gpu::IpcMemoryHandle& card) const;
  // Returns the address at which `device` of this process reaches another member's data; a negative `device` (the host)
  // stands for the GPU that holds them. Copies may also use a mapping on that GPU, since the two GPUs may have no
  // access to each other (`is_copied`). The mapping stays owned by this object. Throws Error device if neither can map
  // it.
  std::byte* reach(int member, const BufferAddress& place, const gpu::IpcMemoryHandle& card, int device,
                   bool is_copied);
  // True if the member is a thread of this process.
  bool is_here(int member) const { return processes_[static_cast<std::size_t>(member)] == processes_[me_]; }
  // Returns another process's event on the GPU with this number. This object owns the event. Throws Error device if it
  // cannot be opened.
  gpu::DeviceEvent& open(int member, const gpu::IpcEventHandle& card, int number);
  // Unmaps memory that its owner has freed, unless work is under way that may use it. CUDA then waits for everything
  // that this process runs on the GPU. A call in a stream may be held back, so it unmaps only when many mappings have
  // piled up.
  void unmap_what_was_let_go(bool is_in_stream);
  // Releases all waits here for the events of a member that has died.
  void let_go_of(int member);
  // Sets the events that tell if work under way still uses the mappings. The caller keeps them alive as long as this
  // object works.
  void use_with(const GpuEvents& events) { events_ = &events; }

 private:
  enum class MappingProof : std::uint8_t { untried, proven, refused };
  static constexpr int most_in_vain = 8;  // calls without a buffer on a GPU; a guess
  // Counts kinds of calls by their remainder, so that some kinds share a counter.
  static constexpr std::size_t kinds = 64;
  static constexpr std::size_t most_mapped = 64;  // mappings for each process; the least recently used one goes first
  // Is one mapped allocation of another process.
  struct Mapping {
    std::uint64_t process = 0;
    std::uint64_t number = 0;  // of the allocation in that process
    int device = 0;
    std::byte* here = nullptr;
    std::uint64_t used = 0;  // the larger, the later it was used
  };

  Gpus() = default;
  void unmap(const Mapping& mapping) noexcept;
  void forget(std::uint64_t process, const gpu::IpcMemoryHandle& card);
  Mapping map(const gpu::IpcMemoryHandle& card, int device, int theirs);

  gpu::DeviceBackend* backend_ = nullptr;
  std::vector<int> devices_;  // of this process, by shared number
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
