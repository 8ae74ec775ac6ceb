// SPDX-License-Identifier: Apache-2.0
// Counts processors, and moves threads.
#include "runtime/data/processors.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "topology/base/affinity.hpp"
#include "topology/base/cgroup.hpp"

namespace lockstep::data {
namespace {

// Is added to the program's nice value for a helper on a replica's processor. The kernel then gives it a quarter of the
// time, so that a replica that waits for data by spinning cannot starve it. A guess; training with a slow pipeline
// would tell.
constexpr int lower_priority = 5;

// Holds the processors of helpers.
struct Room {
  std::vector<int> cpus;
  std::size_t free = 0;
  bool gives_way = false;  // True if replicas have these processors, too.
};

// Has the way in which the kernel shares a processor among threads.
struct Priority {
  int policy = SCHED_OTHER;
  int nice = 0;
  bool operator==(const Priority&) const = default;
};

// Linux has a nice value for each thread.
Priority current_priority() { return {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)}; }

void set_priority(const Priority& priority) {
  const sched_param none{};
  ::sched_setscheduler(0, priority.policy, &none);
  ::setpriority(PRIO_PROCESS, 0, priority.nice);
}

// Knows the strategies of this process, its processors and its priority. Those are the ones of the first thread that
// asks: a strategy asks before it binds a thread.
class Registry {
 public:
  // Is never destroyed, since helpers may run while exit() destroys statics.
  static Registry& of_process() {
    static Registry& registry = *new Registry();
    return registry;
  }
  void add(const ReplicaProcessors* strategy) {
    change([&] { strategies_.insert(strategy); });
  }
  void remove(const ReplicaProcessors* strategy) {
    change([&] { strategies_.erase(strategy); });
  }
  Room room() const {
    const std::lock_guard lock(mutex_);
    return measured();
  }
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  // Returns the priority of threads in a room. A batch thread does not interrupt another one when it wakes up.
  Priority priority_in(const Room& room) const {
    if (!room.gives_way) return first_priority_;
    return {SCHED_BATCH, std::min(19, first_priority_.nice + lower_priority)};
  }
  std::size_t free() const { return free_.load(std::memory_order_relaxed); }

 private:
  Registry() : all_(bound_processors()), first_priority_(current_priority()), quota_(cpu_quota()) {
    free_ = measured().free;
  }
  template <class F>
  void change(F&& function) {
    const std::lock_guard lock(mutex_);
    function();
    free_.store(measured().free, std::memory_order_relaxed);
    changes_.fetch_add(1, std::memory_order_release);
  }
  Room measured() const {
    Room room{.cpus = all_};
    std::size_t replicas = 0;
    for (const ReplicaProcessors* const strategy : strategies_) {
      replicas += strategy->threads().size();
      for (const std::vector<int>& thread : strategy->threads()) {
        for (const int cpu : thread) std::erase(room.cpus, cpu);
      }
    }
    const bool has_own = !room.cpus.empty();
    if (!has_own) room.cpus = all_;
    std::size_t limit = all_.size();
    if (quota_) limit = std::min(limit, static_cast<std::size_t>(std::max(1.0, *quota_)));
    room.free = std::min(room.cpus.size(), limit - std::min(limit, replicas));
    room.gives_way = !has_own || room.free == 0;
    return room;
  }

  const std::vector<int> all_;
  const Priority first_priority_;
  const std::optional<double> quota_;
  mutable std::mutex mutex_;
  std::set<const ReplicaProcessors*> strategies_;
  std::atomic<std::size_t> free_{0};
  std::atomic<std::uint64_t> changes_{0};
};

}  // namespace

ReplicaProcessors::ReplicaProcessors(std::vector<std::vector<int>> threads) : threads_(std::move(threads)) {
  Registry::of_process().add(this);
}
ReplicaProcessors::~ReplicaProcessors() { Registry::of_process().remove(this); }

std::size_t free_processors() { return Registry::of_process().free(); }

void HelperPlacement::update() {
  const Registry& registry = Registry::of_process();
  const std::uint64_t changes = registry.changes();
  if (changes == seen_) return;
  seen_ = changes;
  const Room room = registry.room();
  if (!room.cpus.empty()) bind_to_processors(room.cpus);
  // Threads inherit the priority of the one that starts them, so it is set rather than lowered.
  const Priority priority = registry.priority_in(room);
  if (current_priority() != priority) set_priority(priority);
}

}  // namespace lockstep::data
