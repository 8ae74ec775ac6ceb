// SPDX-License-Identifier: Apache-2.0
// Runs jobs in the replicas' threads, and collects their exceptions.
#include "runtime/replica_threads.hpp"

#include <cxxabi.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/devices.hpp"
#include "runtime/replica_error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string detail::message_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an object that is not a std::exception";
  }
}

bool detail::is_consequence(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    return error.code() == Code::peer_failed || error.code() == Code::already_failed;
  } catch (...) {
    return false;
  }
}

void detail::terminate_with_thread(const std::string& where) noexcept {
  const auto refuse = [&] {
    throw Error(Code::usage, text("a thread was ended in ", where, ", by pthread_exit or pthread_cancel"),
                "let the function return, or throw an exception");
  };
  refuse();
  std::terminate();
}

namespace {

// A guess at the cost of sleeping and waking up. A measurement of both on the machine would tell.
constexpr std::chrono::microseconds worth_spinning{20};

// Waits until the value is no longer `old`: spins first, then sleeps.
template <class T>
void wait_while(const std::atomic<T>& value, T old, bool spins) {
  if (spins) {
    const auto end = std::chrono::steady_clock::now() + worth_spinning;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ReplicaError::ReplicaError(int replica, int of, std::uint64_t run, const std::string& message, std::exception_ptr cause,
                           bool can_go_on)
    : Error(Code::replica_failed, text("replica ", replica, " of ", of, ": ", message),
            can_go_on ? "the others were cancelled; the strategy can be used again"
                      : "the others were cancelled, on all processes; make a new strategy, and adopt() the variables "
                        "of this one"),
      replica_(replica),
      run_(run),
      cause_(std::move(cause)) {}

ReplicaThreads::ReplicaThreads(int size, std::vector<std::vector<int>> cpus)
    : size_(size),
      processors_(cpus.empty() ? std::vector<std::vector<int>>(static_cast<std::size_t>(size)) : std::move(cpus)),
      spins_(static_cast<unsigned>(size) <= std::thread::hardware_concurrency()) {
  threads_.reserve(static_cast<std::size_t>(size) - 1);
  for (int seat = 1; seat < size; ++seat) {
    try {
      threads_.emplace_back([this, seat] { work(seat); });
    } catch (const std::system_error& error) {
      dismiss();
      throw system_error(text("thread ", seat, " of ", size - 1, " for the replicas"), error.code().value(),
                         "use fewer replicas, or raise the limit of threads (ulimit -u, the control group's pids.max)");
    }
  }
}

ReplicaThreads::~ReplicaThreads() { dismiss(); }

void ReplicaThreads::dismiss() {
  over_ = true;
  jobs_.fetch_add(1, std::memory_order_release);
  jobs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

const std::vector<int>& ReplicaThreads::cpus_of(int seat) const {
  return processors_.threads().at(static_cast<std::size_t>(seat));
}

void ReplicaThreads::work(int seat) {
  const detail::ScopedCpuBinding binding(cpus_of(seat));
  for (std::uint32_t done = 0;; ++done) {
    wait_while(jobs_, done, spins_);
    if (over_) return;
    run_seat(seat);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void ReplicaThreads::run_seat(int seat) noexcept {
  try {
    (*job_)(seat);
  } catch (const abi::__forced_unwind&) {
    detail::terminate_with_thread(text("the function of replica ", seat, " of this process"));
  } catch (...) {
    const std::exception_ptr cause = std::current_exception();
    {
      const std::lock_guard lock(mutex_);
      thrown_.push_back({seat, cause});
    }
    (*failure_handler_)(seat, detail::message_of(cause));
  }
}

std::vector<ReplicaThreads::SeatFailure> ReplicaThreads::run(const SeatFunction& job,
                                                             const FailureHandler& failure_handler) {
  const detail::ScopedCpuBinding binding(cpus_of(0));
  job_ = &job;
  failure_handler_ = &failure_handler;
  busy_.store(size_ - 1, std::memory_order_relaxed);
  jobs_.fetch_add(1, std::memory_order_release);
  if (size_ > 1) jobs_.notify_all();
  run_seat(0);
  for (int left = busy_.load(std::memory_order_acquire); left > 0; left = busy_.load(std::memory_order_acquire))
    wait_while(busy_, left, spins_);
  return std::exchange(thrown_, {});
}

}  // namespace lockstep
