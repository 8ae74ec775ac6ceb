// SPDX-License-Identifier: Apache-2.0
// What team.cpp and team_letters.cpp share, and nobody else sees: calls under way, and who is inside.
#pragma once

#include <chrono>
#include <thread>

#include "collectives/communicator/team.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/nccl/clique.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// What GPUs do by NCCL if every member's data is in the memory of a GPU, which members ask each other when it is
// first started.
struct OnGpus {
  enum class Way : std::uint8_t { unknown, clique, levels, otherwise };
  static constexpr int anywhere = -2;

  std::vector<nccl::Step> steps;
  std::shared_ptr<const Plan> meeting;
  // Where all of this member's data is; host: not in one GPU's memory.
  int device = anywhere;
  // Of the stream that the program gave; the default one is that of the GPU that has the data.
  int stream_device = anywhere;
  std::function<Ready()> otherwise;
  Way way = Way::unknown;
  // Whether the same parts of memory that NCCL knows are given on all members.
  bool is_same_memory = false;
  void set_same_memory(bool is_same) {
    is_same_memory = is_same;
    for (nccl::Step& step : steps) step.is_same_memory = is_same;
  }
  std::uint64_t places = 0;    // nccl::Clique::places_of, when that was found out
  std::optional<Ready> other;  // once it is needed
};

// A call that is under way, or the memory of one that may come again.
struct Team::Pending {
  std::uint32_t generation = 0;
  bool busy = false;
  std::vector<Ticket> tickets;
  std::size_t done = 0;  // of the tickets
  std::vector<Copy> back;
  std::vector<std::byte> staging;  // of messages
  std::vector<Staged> staged;      // of collectives, and of messages to and from a GPU: kept until they are done
  std::vector<std::shared_ptr<gpu::Mark>> marks;  // of what is in GPUs' streams
  std::vector<nccl::Step> together;               // of calls that are started at once, what is one operation of NCCL's
  Marks behind;                                   // what they come after, where that is not the default stream
  bool in_stream = false;                         // of the user's, where it need not be waited for
  Origin origin;
};

class Team::Use {
 public:
  Use(Team& team, const Origin& origin) : team_(team) {
    if (try_enter(origin)) return;
    throw Error(Code::usage,
                text("communicator \"", team.options_.name, "\" is used by two threads at once; the second call is at ",
                     place(origin)),
                "give each thread a communicator of its own: duplicate() makes one");
  }
  // For a destructor, which cannot refuse: waits for the other thread, but a second or so at most, since that may be
  // this one.
  explicit Use(Team& team) : team_(team) {
    constexpr int most = 50'000;
    for (int i = 0; i < most && !try_enter(nowhere); ++i) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ~Use() {
    if (!inside_) return;
    team_.break_if_failed();
    team_.user_.store(nullptr, std::memory_order_release);
  }
  bool inside() const { return inside_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  static constexpr Origin nowhere{};

  bool try_enter(const Origin& origin) {
    const Origin* nobody = nullptr;
    inside_ = team_.user_.compare_exchange_strong(nobody, &origin, std::memory_order_acquire);
    return inside_;
  }

  Team& team_;
  bool inside_ = false;
};

// What f returns; what it throws is told to the other members, so that they do not wait.
template <class F>
auto Team::or_refuse(const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    engine_->refuse(error);
    throw;
  }
}

}  // namespace lockstep::detail
