// SPDX-License-Identifier: Apache-2.0
// Owns the threads that run jobs of all queues in turns.
#include "runtime/data/job_queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/data/processors.hpp"

namespace lockstep::data {
namespace {

// Starts threads when queues need them. They stay until the process ends.
class HelperThreads {
 public:
  // Is never destroyed, since its threads may run while exit() destroys statics. A child of fork() has none of the
  // threads, and begins with another object.
  static HelperThreads& of_process() {
    static const int once = ::pthread_atfork(nullptr, nullptr, [] { current().store(new HelperThreads()); });
    (void)once;
    return *current().load();
  }
  void add(std::shared_ptr<JobQueue> queue) {
    const std::lock_guard lock(mutex_);
    queues_.push_back(std::move(queue));
    if (queues_.size() > threads_ - active_ && threads_ < limit()) start();
    has_queue_.notify_one();
  }

 private:
  static std::atomic<HelperThreads*>& current() {
    static std::atomic<HelperThreads*>& threads = *new std::atomic<HelperThreads*>(new HelperThreads());
    return threads;
  }
  static std::size_t limit() { return std::max<std::size_t>(1, free_processors()); }
  // If the system has no thread left, readers run their jobs alone.
  void start() try {
    std::thread([this] { work(); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    return;
  }
  [[noreturn]] void work() {
    HelperPlacement placement;
    for (std::unique_lock lock(mutex_);;) {
      has_queue_.wait(lock, [&] { return !queues_.empty() && active_ < limit(); });
      std::shared_ptr<JobQueue> queue = std::move(queues_.front());
      queues_.pop_front();
      ++active_;
      lock.unlock();
      placement.update();
      queue->run_for_others();
      queue.reset();
      lock.lock();
      --active_;
      if (!queues_.empty()) has_queue_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_queue_;
  std::deque<std::shared_ptr<JobQueue>> queues_;  // Holds a queue once for each thread that it has asked for.
  std::size_t threads_ = 0;
  std::size_t active_ = 0;
};

}  // namespace

void JobQueue::set_limit(std::size_t limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

void JobQueue::add(std::shared_ptr<Job> job) {
  std::unique_lock lock(mutex_);
  waiting_.push_back(std::move(job));
  ask_for_thread(lock);
}

bool JobQueue::is_done(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.is_done_;
}

void JobQueue::wait(const Job& job) {
  std::unique_lock lock(mutex_);
  while (!job.is_done_) {
    if (!run_next(lock)) changed_.wait(lock);
  }
  ask_for_thread(lock);
}

void JobQueue::forget(const Job& job) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const std::shared_ptr<Job>& each) { return each.get() == &job; });
}

void JobQueue::stop() {
  std::unique_lock lock(mutex_);
  waiting_.clear();
  changed_.wait(lock, [&] { return active_ == 0; });
}

void JobQueue::run_for_others() {
  std::unique_lock lock(mutex_);
  run_next(lock);
  --asked_;
  ask_for_thread(lock);
}

// Returns false if no job waits, or if enough are under way.
bool JobQueue::run_next(std::unique_lock<std::mutex>& lock) {
  if (waiting_.empty() || active_ >= limit_) return false;
  const std::shared_ptr<Job> job = std::move(waiting_.front());
  waiting_.pop_front();
  ++active_;
  lock.unlock();
  job->run();
  lock.lock();
  --active_;
  job->is_done_ = true;
  changed_.notify_all();
  return true;
}

// Unlocks. A thread that asks again waits behind the queues of others.
void JobQueue::ask_for_thread(std::unique_lock<std::mutex>& lock) {
  const bool asks = !waiting_.empty() && active_ < limit_ && asked_ < limit_;
  if (asks) ++asked_;
  lock.unlock();
  if (asks) HelperThreads::of_process().add(shared_from_this());
}

}  // namespace lockstep::data
