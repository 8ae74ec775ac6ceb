// SPDX-License-Identifier: Apache-2.0
// What the files of the tests' NCCL share: a group, and a member's end of it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/collectives/nccl/fake_nccl.hpp"

namespace lockstep::test {

inline constexpr int polls = 3;

// What one member brings to a collective.
struct Part {
  const void* in;
  void* out;
};

struct Meeting {
  std::optional<FakeNccl::Asked> kind;
  std::vector<Part> parts;
  int arrived = 0;
  bool is_done = false;
};

struct Letter {
  const void* from;
  std::size_t bytes;
  bool is_read = false;
};

struct FakeNccl::Group {
  explicit Group(int members) : size(members) {}

  // What a member has in streams ends when it leaves, whatever it waits for; when another does, it goes on waiting.
  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, int rank, const Ready& ready) {
    changed.wait(lock, [&] { return is_over(rank) || ready(); });
    return !is_over(rank);
  }
  bool is_over(int rank) const { return left.contains(rank); }

  int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> devices;
  int joined = 0;
  int finished = 0;
  std::set<int> left;  // by breaking off
  bool is_broken = false;
  std::deque<Meeting> meetings;  // by number
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Letter>>> letters;
};

template <class Group>
struct FakeMember final : nccl::NcclComm {
  FakeMember(std::shared_ptr<Group> all, int number, int gpu) : group(std::move(all)), rank(number), device(gpu) {}
  std::shared_ptr<Group> group;
  int rank;
  int device;
  bool has_finished = false;
  int busy = 0;  // so often it says so after something was begun
  std::shared_ptr<std::atomic<int>> in_streams = std::make_shared<std::atomic<int>>(0);  // which it has begun
  std::shared_ptr<std::size_t> met = std::make_shared<std::size_t>(0);  // collectives that its streams have come to
};

}  // namespace lockstep::test
