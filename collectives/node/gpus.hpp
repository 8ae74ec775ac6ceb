// SPDX-License-Identifier: Apache-2.0
// GPUs that several processes of a node see: where their members' data lie there, the others map that memory and read
// and write it as their own. All know a GPU by its number in the list of those that every member sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/gpu/layer.hpp"
#include "collectives/node/memories.hpp"

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
  bool can_map() const { return state_ != State::refused; }
  bool is_proven() const { return state_ == State::proven; }
  void conclude(bool all_could) { state_ = all_could ? State::proven : State::refused; }

  // Why this member could not, for people; once.
  void keep_reason(std::string_view why) { reason_ = why; }
  std::string take_reason() { return std::exchange(reason_, {}); }

  // For the others: where this member's data lie; `card` says how to find the allocation.
  Place show(const void* data, int device, gpu::Shown& card) const;
  // Another member's data. Throws Error device where its memory cannot be mapped here.
  std::byte* reach(int member, const Place& place, const gpu::Shown& card);

 private:
  enum class State : std::uint8_t { untried, proven, refused };
  struct Mapping {
    std::uint64_t process;
    std::uint64_t number;  // of the allocation there
    std::uintptr_t base;   // there
    int device;
    std::byte* here;
    std::uint64_t used;  // the larger the later
  };

  Gpus() = default;
  void unmap(const Mapping& mapping) noexcept;

  gpu::Layer* layer_ = nullptr;
  std::vector<int> devices_;  // by number
  std::vector<std::uint64_t> processes_;
  std::size_t me_ = 0;
  State state_ = State::untried;
  std::string reason_;
  std::vector<Mapping> mappings_;
  std::uint64_t uses_ = 0;
};

}  // namespace lockstep::node
