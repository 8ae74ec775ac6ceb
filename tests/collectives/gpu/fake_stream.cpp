// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/gpu/fake_stream.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "topology/base/error.hpp"

namespace lockstep::test {
namespace {
thread_local bool is_in_stream = false;
}  // namespace

bool FakeStream::is_within() { return is_in_stream; }

struct FakeStream::State {
  void work();
  // Throws what failed.
  bool is_done(std::size_t many) const {
    if (error) std::rethrow_exception(error);
    return done >= many;
  }

  void refuse_if_captured() const {
    if (captured) throw Error(Code::internal, "a stream that is captured was asked for what is done");
  }

  std::mutex mutex;
  std::optional<std::vector<std::function<void()>>> captured;
  std::condition_variable changed;
  std::deque<std::function<void()>> works;
  std::size_t put = 0;
  std::size_t done = 0;
  bool ends = false;
  std::exception_ptr error;
};

class FakeStream::Reached : public gpu::StreamMark, public FakeMark {
 public:
  Reached(std::shared_ptr<State> state, std::size_t many) : state_(std::move(state)), many_(many) {}
  bool is_reached() override { return when_reached()(); }
  std::function<bool()> when_reached() const override {
    return [state = state_, many = many_] {
      const std::lock_guard lock(state->mutex);
      return state->is_done(many);
    };
  }

 private:
  std::shared_ptr<State> state_;
  std::size_t many_;
};

class FakeStream::Timed final : public Reached {
 public:
  using Clock = std::chrono::steady_clock;
  Timed(std::shared_ptr<State> state, std::size_t many, std::shared_ptr<Clock::time_point> when)
      : Reached(std::move(state), many), when_(std::move(when)) {}
  Clock::time_point when() {
    if (!is_reached()) throw Error(Code::internal, "a mark was asked when it was reached, and it was not yet");
    return *when_;
  }

 private:
  std::shared_ptr<Clock::time_point> when_;
};

FakeStream::FakeStream(int device)
    : device_(device), state_(std::make_shared<State>()), thread_([state = state_] { state->work(); }) {}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

std::function<bool()> FakeStream::when_over() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->captured || state_->done == state_->put) return {};
  return [state = state_, many = state_->put] {
    const std::lock_guard inside(state->mutex);
    return state->done >= many;
  };
}

void FakeStream::put(std::function<void()> work, std::vector<std::function<bool()>> after) {
  if (!after.empty())
    work = [others = std::move(after), then = std::move(work)] {
      for (const auto& is_over : others) {
        while (!is_over()) std::this_thread::yield();
      }
      then();
    };
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->captured) return state_->captured->push_back(std::move(work));
    state_->works.push_back(std::move(work));
    ++state_->put;
  }
  state_->changed.notify_all();
}

std::shared_ptr<gpu::StreamMark> FakeStream::mark() {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_captured();
  return std::make_shared<Reached>(state_, state_->put);
}

std::shared_ptr<gpu::StreamMark> FakeStream::mark_time() {
  auto when = std::make_shared<Timed::Clock::time_point>();
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_captured();
  state_->works.emplace_back([when] { *when = Timed::Clock::now(); });
  ++state_->put;
  state_->changed.notify_all();
  return std::make_shared<Timed>(state_, state_->put, when);
}

double FakeStream::microseconds(gpu::StreamMark& from, gpu::StreamMark& to) {
  const auto passed = dynamic_cast<Timed&>(to).when() - dynamic_cast<Timed&>(from).when();
  return std::chrono::duration<double, std::micro>(passed).count();
}

void FakeStream::wait() {
  std::unique_lock lock(state_->mutex);
  state_->refuse_if_captured();
  const std::size_t many = state_->put;
  state_->changed.wait(lock, [&] { return state_->is_done(many); });
}

void FakeStream::capture() {
  const std::lock_guard lock(state_->mutex);
  state_->captured.emplace();
}

bool FakeStream::is_captured() const {
  const std::lock_guard lock(state_->mutex);
  return state_->captured.has_value();
}

std::vector<std::function<void()>> FakeStream::take_captured() {
  const std::lock_guard lock(state_->mutex);
  return *std::exchange(state_->captured, std::nullopt);
}

void FakeStream::State::work() {
  is_in_stream = true;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ends || !works.empty(); });
    if (works.empty()) return;
    auto next = std::move(works.front());
    works.pop_front();
    const bool goes_on = error == nullptr;
    lock.unlock();
    std::exception_ptr failed;
    try {
      if (goes_on) next();
    } catch (...) {
      failed = std::current_exception();
    }
    next = nullptr;
    lock.lock();
    if (failed && !error) error = failed;
    ++done;
    changed.notify_all();
  }
}

}  // namespace lockstep::test
