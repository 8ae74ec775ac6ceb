// SPDX-License-Identifier: Apache-2.0
// Records which channels of a wire this process uses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {

// Holds the channels in use by this process, and the newest generation that it knows. Several threads may use it.
class ChannelTable {
 public:
  // Returns the channels in use, once for each user.
  std::vector<int> in_use() {
    const std::lock_guard lock(mutex_);
    return channels_;
  }
  void take(int channel) {
    const std::lock_guard lock(mutex_);
    channels_.push_back(channel);
  }
  void give_back(int channel) {
    const std::lock_guard lock(mutex_);
    const auto one = std::ranges::find(channels_, channel);  // several threads may be members of one exchange
    if (one != channels_.end()) channels_.erase(one);
  }
  std::uint32_t generation() const { return generation_; }
  void set_generation(std::uint32_t generation) { generation_ = generation; }
  // Returns the mutex that a thread of this process holds while it chooses a channel for a new exchange.
  std::mutex& choosing() { return choosing_; }

 private:
  std::mutex mutex_;  // guards channels_
  std::vector<int> channels_;
  std::atomic<std::uint32_t> generation_ = 0;
  std::mutex choosing_;
};

}  // namespace lockstep
