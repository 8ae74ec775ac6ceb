// SPDX-License-Identifier: Apache-2.0
// A GPU's stream for machines without one: what is put into it is done in order, by a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::test {

class FakeMark {
 public:
  FakeMark() = default;
  virtual ~FakeMark() = default;
  FakeMark(const FakeMark&) = delete;
  FakeMark& operator=(const FakeMark&) = delete;
  // Whether what it marks now is done, whatever it marks by then.
  virtual std::function<bool()> when_reached() const = 0;
};

class FakeStream {
 public:
  explicit FakeStream(int device = 0);
  // Does what is in it first.
  ~FakeStream();
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  int device() const { return device_; }
  // Whether the calling thread does what was put into one.
  static bool is_within();
  // Whether all that was put there until now is over, done or not; nothing, where it is already, or is only kept.
  std::function<bool()> when_over() const;
  // Behind all that others say with when_over().
  void put(std::function<void()> work, std::vector<std::function<bool()>> after = {});
  std::shared_ptr<gpu::StreamMark> mark();
  // One that knows when; work of the stream's own, so that it is done when the thread comes to it.
  std::shared_ptr<gpu::StreamMark> mark_time();
  static double microseconds(gpu::StreamMark& from, gpu::StreamMark& to);
  // What fails stays, and is thrown by all who ask; nothing that comes after it is done.
  void wait();
  // What is put there from now on is not done but kept; until it is taken.
  void capture();
  bool is_captured() const;
  std::vector<std::function<void()>> take_captured();

 private:
  struct State;
  class Reached;
  class Timed;

  int device_;

  std::shared_ptr<State> state_;  // marks live longer
  std::thread thread_;
};

}  // namespace lockstep::test
