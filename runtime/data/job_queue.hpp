// SPDX-License-Identifier: Apache-2.0
// Runs jobs in the threads that all pipelines of the process share. There are no more of these threads than
// free_processors(), and one at least.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace lockstep::data {

// Is work for one thread.
class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;
  virtual void run() noexcept = 0;

 private:
  friend class JobQueue;
  bool is_done_ = false;
};

// Runs the jobs of one reader, the oldest first. The reader never depends on other threads: it runs jobs that none has
// begun while it waits. So jobs may wait for jobs of queues of their own. A std::shared_ptr must own it.
class JobQueue : public std::enable_shared_from_this<JobQueue> {
 public:
  // Runs `limit` jobs at most at once, with those that the reader runs.
  explicit JobQueue(std::size_t limit) : limit_(limit) {}
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  void set_limit(std::size_t limit);

  void add(std::shared_ptr<Job> job);
  bool is_done(const Job& job) const;
  // Returns when a job that was added is done. Its results may be read then.
  void wait(const Job& job);
  // Forgets a job if it has not begun.
  void forget(const Job& job);
  // Forgets the jobs that have not begun, and returns when no thread runs another one.
  void stop();

  // Runs one job, for a thread of the process.
  void run_for_others();

 private:
  bool run_next(std::unique_lock<std::mutex>& lock);
  void ask_for_thread(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::size_t limit_;
  std::size_t active_ = 0;  // Counts the jobs that threads run now.
  std::size_t asked_ = 0;   // Counts the threads of the process that run jobs, or will.
};

}  // namespace lockstep::data
