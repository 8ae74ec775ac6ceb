// SPDX-License-Identifier: Apache-2.0
// Implements an exchange among threads by one rendezvous in memory.
#include "topology/local_exchange.hpp"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {
namespace {

// Collects the blocks of the threads of one exchange. All threads fill a round, all read it, and then it is empty
// again. No thread enters the next round before every thread has read this one.
class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int size) : size_(size), blocks_(static_cast<std::size_t>(size)) {}

  std::vector<Bytes> meet(Exchange& who, std::string_view what, std::span<const std::byte> mine,
                          WaitLimits wait_limits);
  void fail(std::string_view why);
  std::optional<std::string> failure();
  std::shared_ptr<ThreadRendezvous> side_rendezvous(const std::vector<int>& ranks);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void wait(Lock& lock, Exchange& who, std::string_view what, WaitLimits wait_limits,
            const std::function<bool()>& done);
  std::string missing(std::string_view what) const;
  void fail_locked(const Error& error);
  void check_failure(Lock& lock) const;

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> blocks_;
  IndexSet arrived_;
  int readers_ = 0;  // threads that still have to read the complete round
  std::string what_;
  int who_first_ = -1;
  std::exception_ptr failure_;
  std::map<std::vector<int>, std::pair<std::shared_ptr<ThreadRendezvous>, std::size_t>> side_rendezvous_;
};

// Returns the sentence that names the threads that have not arrived.
std::string ThreadRendezvous::missing(std::string_view what) const {
  const IndexSet absent = exchange_rules::missing_ranks(size_, [this](int rank) { return arrived_.contains(rank); });
  return exchange_rules::absence(what, blocks_.size(), "threads", absent);
}

// Throws the first failure. The lock shows that the caller holds the mutex.
void ThreadRendezvous::check_failure(Lock&) const {
  if (failure_) std::rethrow_exception(failure_);
}

// Keeps the first failure, and wakes all waiting threads.
void ThreadRendezvous::fail_locked(const Error& error) {
  if (!failure_) failure_ = std::make_exception_ptr(error);
  changed_.notify_all();
}

void ThreadRendezvous::fail(std::string_view why) {
  const Lock lock(mutex_);
  fail_locked(Error(Code::peer_failed, why));
}

std::optional<std::string> ThreadRendezvous::failure() {
  const Lock lock(mutex_);
  if (!failure_) return std::nullopt;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Waits until `done()`, with a warning and a limit. Meanwhile it drives the calls that this thread has under way.
void ThreadRendezvous::wait(Lock& lock, Exchange& who, std::string_view what, WaitLimits wait_limits,
                            const std::function<bool()>& done) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ready = [&] { return done() || failure_ != nullptr; };
  // Waits without an end, or until `after`. Returns false if that time is over.
  const auto wait_until = [&](std::optional<Duration> after) {
    while (has_busy_hooks()) {                         // drives calls that this thread has in flight elsewhere
      constexpr std::chrono::microseconds slice{200};  // between two calls of the hooks; a guess
      if (changed_.wait_for(lock, slice, ready)) return true;
      if (after && std::chrono::steady_clock::now() >= begin + *after) return false;
      lock.unlock();
      run_progress_hooks(0);
      lock.lock();
    }
    if (after) return changed_.wait_until(lock, begin + *after, ready);
    changed_.wait(lock, ready);
    return true;
  };
  bool came = false;
  if (exchange_rules::warns_first(wait_limits)) {
    came = wait_until(wait_limits.warn);
    if (!came) who.log().warn(exchange_rules::stall_warning(wait_limits.warn, missing(what)));
  }
  if (!came && wait_limits.limit > Duration{} && !wait_until(wait_limits.limit))
    fail_locked(exchange_rules::stall(wait_limits.limit, missing(what)));
  wait_until(std::nullopt);
  check_failure(lock);
}

// Runs one round: waits until all have read the last round, adds this thread's block, waits for all, and reads.
std::vector<Bytes> ThreadRendezvous::meet(Exchange& who, std::string_view what, std::span<const std::byte> mine,
                                          WaitLimits wait_limits) {
  Lock lock(mutex_);
  check_failure(lock);
  wait(lock, who, what, wait_limits, [&] { return readers_ == 0; });
  if (arrived_.empty()) {
    what_ = what;
    who_first_ = who.rank();
  } else if (what_ != what) {
    fail_locked(exchange_rules::mismatch(who_first_, what_, who.rank(), what));
    check_failure(lock);
  }
  blocks_.at(static_cast<std::size_t>(who.rank())).assign(mine.begin(), mine.end());
  arrived_.insert(who.rank());
  if (arrived_.size() == static_cast<std::size_t>(size_)) {
    readers_ = size_;
    changed_.notify_all();
  } else {
    wait(lock, who, what, wait_limits, [&] { return readers_ > 0; });
  }
  auto all = blocks_;
  if (--readers_ == 0) {
    arrived_ = {};
    changed_.notify_all();
  }
  return all;
}

// Returns the rendezvous of a split. The first thread of the group makes it, and the last one removes it from the map.
std::shared_ptr<ThreadRendezvous> ThreadRendezvous::side_rendezvous(const std::vector<int>& ranks) {
  const Lock lock(mutex_);
  auto& [rendezvous, takers] = side_rendezvous_[ranks];
  if (!rendezvous) rendezvous = std::make_shared<ThreadRendezvous>(static_cast<int>(ranks.size()));
  auto taken = rendezvous;
  if (++takers == ranks.size()) side_rendezvous_.erase(ranks);
  return taken;
}

// Is one thread's end of a rendezvous, which all ends own together.
class LocalExchange final : public Exchange {
 public:
  LocalExchange(std::shared_ptr<ThreadRendezvous> rendezvous, int rank, int size, WaitLimits wait_limits, Log log)
      : Exchange(rank, size, wait_limits, std::move(log)), rendezvous_(std::move(rendezvous)) {}

  std::optional<std::string> known_loss() override { return rendezvous_->failure(); }

 private:
  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine,
                                WaitLimits wait_limits) override {
    return rendezvous_->meet(*this, what, mine, wait_limits);
  }
  void tell_failure(std::string_view why) override { rendezvous_->fail(why); }
  Bytes channels_in_use() override { return {}; }
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>&) override {
    int index = 0;
    while (ranks.at(static_cast<std::size_t>(index)) != rank()) ++index;
    return std::make_unique<LocalExchange>(rendezvous_->side_rendezvous(ranks), index, static_cast<int>(ranks.size()),
                                           wait_limits(), log());
  }

  std::shared_ptr<ThreadRendezvous> rendezvous_;
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int size, WaitLimits wait_limits, const Log& log) {
  if (size < 1) throw Error(Code::usage, text("an exchange among ", size, " members"), "give at least 1");
  auto rendezvous = std::make_shared<ThreadRendezvous>(size);
  std::vector<std::unique_ptr<Exchange>> all;
  all.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(std::make_unique<LocalExchange>(rendezvous, rank, size, wait_limits,
                                                  log.speaking_as(text("rank ", rank, " of ", size))));
  }
  return all;
}

void run_local(int size, const std::function<void(Exchange&)>& body, WaitLimits wait_limits, const Log& log) {
  const auto exchanges = make_local_exchanges(size, wait_limits, log);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(exchanges.size());
  for (const auto& exchange : exchanges) {
    threads.emplace_back([&, own = exchange.get()] {
      try {
        body(*own);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        own->fail(error.what());
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        own->fail("an exception that is not a std::exception ends it");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep
