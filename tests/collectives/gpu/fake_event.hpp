// SPDX-License-Identifier: Apache-2.0
// A GPU's event for machines without one: what was recorded is counted in memory that other processes open.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "collectives/gpu/device_backend.hpp"
#include "tests/collectives/gpu/fake_stream.hpp"

namespace lockstep::test {

class FakeEvent final : public gpu::DeviceEvent, public FakeMark {
 public:
  // Puts work into a stream.
  using Put = std::function<void(gpu::Stream, std::function<void()>)>;
  explicit FakeEvent(Put put);
  // Another process's.
  explicit FakeEvent(const gpu::IpcEventHandle& theirs);
  ~FakeEvent() override;
  FakeEvent(const FakeEvent&) = delete;
  FakeEvent& operator=(const FakeEvent&) = delete;

  void record(gpu::Stream stream) override;
  std::optional<gpu::IpcEventHandle> show() override;
  void release_waits() override { *is_released_ = true; }
  bool is_reached() override { return when_reached()(); }
  std::function<bool()> when_reached() const override;
  // What becomes of waits for the events of a process that has died, which CUDA does not say: they last for ever, or
  // end as if nothing had been there.
  static void end_with_their_process(bool do_end);

 private:
  struct Shared;
  class Record;
  void map();

  Put put_;
  int file_ = -1;
  std::shared_ptr<std::atomic<bool>> is_released_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<const int> process_;  // a descriptor of it, where it is another one
  std::uint64_t number_ = 0;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::test
