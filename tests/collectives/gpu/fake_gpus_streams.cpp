// SPDX-License-Identifier: Apache-2.0
// The streams of the tests' GPUs, in the order that CUDA promises.
#include <utility>

#include "tests/collectives/gpu/fake_event.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

thread_local bool streams_fail = false;

}  // namespace

void FakeGpus::fail_streams(bool fails) { streams_fail = fails; }

gpu::Stream FakeGpus::make_stream(int device) {
  ++made_streams_;
  if (streams_fail) throw Error(Code::device, text("making a stream on GPU ", device, ": none left"), "");
  return new FakeStream(device);
}

gpu::Stream FakeGpus::make_ordinary_stream(int device) {
  auto* const made = new FakeStream(device);
  const std::lock_guard lock(streams_mutex_);
  ordinary_.insert(made);
  return made;
}

void FakeGpus::end_stream(int /*device*/, gpu::Stream stream) noexcept {
  auto* const its = static_cast<FakeStream*>(stream);
  {
    const std::lock_guard lock(streams_mutex_);
    ordinary_.erase(its);
  }
  delete its;
  --made_streams_;
}

FakeStream& FakeGpus::of(int device, gpu::Stream stream) {
  if (stream != nullptr) return *static_cast<FakeStream*>(stream);
  const std::lock_guard lock(streams_mutex_);
  auto& its = defaults_[device == gpu::MemoryLocation::host ? used() : device];
  if (!its) its = std::make_unique<FakeStream>(device == gpu::MemoryLocation::host ? used() : device);
  return *its;
}

// What comes into it now has to wait for this.
std::vector<std::function<bool()>> FakeGpus::before(const FakeStream& stream) {
  std::vector<std::function<bool()>> all;
  const auto add = [&](const FakeStream& other) {
    if (auto is_over = other.when_over()) all.push_back(std::move(is_over));
  };
  const std::lock_guard lock(streams_mutex_);
  const auto its_default = defaults_.find(stream.device());
  const bool is_default = its_default != defaults_.end() && its_default->second.get() == &stream;
  if (stream.is_captured()) return all;
  for (const FakeStream* const each : ordinary_) {
    if (is_default && each->device() == stream.device()) add(*each);
    if (each == &stream && its_default != defaults_.end()) add(*its_default->second);
  }
  return all;
}

void FakeGpus::put(int device, gpu::Stream stream, std::function<void()> work) {
  FakeStream& its = of(device, stream);
  its.put(std::move(work), before(its));
}

// As CUDA does, it is work like any other.
std::shared_ptr<gpu::StreamMark> FakeGpus::mark(int device, gpu::Stream stream) {
  FakeStream& its = of(device, stream);
  if (auto others = before(its); !others.empty()) its.put([] {}, std::move(others));
  return its.mark();
}

std::shared_ptr<gpu::StreamMark> FakeGpus::mark_time(int device, gpu::Stream stream) {
  ++marks_of_time_;
  FakeStream& its = of(device, stream);
  if (auto others = before(its); !others.empty()) its.put([] {}, std::move(others));
  return its.mark_time();
}

void FakeGpus::wait_for(int device, gpu::Stream stream, gpu::StreamMark& mark) {
  put(device, stream, [is_reached = dynamic_cast<FakeMark&>(mark).when_reached()] {
    while (!is_reached()) std::this_thread::yield();
  });
}

// Before what the layer does at once. What a test puts into a stream is as if it were a kernel, whatever it calls.
void FakeGpus::wait_for_default(int device) {
  if (FakeStream::is_within()) return;
  const auto all = mark(device, nullptr);
  while (!all->is_reached()) std::this_thread::yield();
}

std::unique_ptr<gpu::DeviceEvent> FakeGpus::make_event(int device) {
  ++events_;
  return std::make_unique<FakeEvent>(
      [this, device](gpu::Stream stream, std::function<void()> work) { put(device, stream, std::move(work)); });
}

void FakeGpus::wait(gpu::Stream stream) { of(used(), stream).wait(); }

}  // namespace lockstep::test
