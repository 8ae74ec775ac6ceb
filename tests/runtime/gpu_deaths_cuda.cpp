// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "tests/runtime/gpu_deaths.hpp"

namespace lockstep::test {
namespace {

// What a layer asks of itself only.
struct Inside : gpu::DeviceBackend {
  using DeviceBackend::begin_pinning;
  using DeviceBackend::end_pinning;
  using DeviceBackend::make_event;
};

// The machine's GPUs, with something done before what is asked of them.
class WatchedProcess final : public gpu::DeviceBackend {
 public:
  explicit WatchedProcess(gpu::DeviceBackend& real) : real_(real) {}

  void at(FakeGpus::Moment moment, std::function<void()> hook) {
    hooks_[static_cast<std::size_t>(moment)] = std::move(hook);
  }
  void before_copies(std::function<void()> hook) { before_copies_ = std::move(hook); }
  std::size_t living() const { return living_; }

  int devices() const override { return real_.devices(); }
  void enter(int device) override { real_.enter(device); }
  void leave() noexcept override { real_.leave(); }
  std::string id(int device) const override { return real_.id(device); }
  gpu::MemoryLocation where(const void* address) const override { return real_.where(address); }
  std::byte* allocate(int device, std::size_t bytes) override {
    std::byte* const memory = real_.allocate(device, bytes);
    ++living_;
    return memory;
  }
  void free(int device, std::byte* memory) noexcept override {
    if (memory != nullptr) --living_;
    real_.free(device, memory);
  }
  std::byte* allocate_pinned(std::size_t bytes) override { return real_.allocate_pinned(bytes); }
  void free_pinned(std::byte* memory) noexcept override { real_.free_pinned(memory); }
  std::optional<gpu::IpcMemoryHandle> show(const void* address) override {
    come_to(FakeGpus::Moment::showing);
    return real_.show(address);
  }
  std::byte* map(int device, const gpu::IpcMemoryHandle& theirs) override {
    come_to(FakeGpus::Moment::mapping);
    return real_.map(device, theirs);
  }
  void unmap(int device, std::byte* memory) noexcept override { real_.unmap(device, memory); }
  void copy(int device, gpu::StridedRuns to, gpu::StridedRuns from, std::size_t bytes, std::size_t blocks) override {
    real_.copy(device, to, from, bytes, blocks);
  }
  void pack(int device, const gpu::PackArguments& all, bool packs) override { real_.pack(device, all, packs); }
  void combine(int device, DataType type, const gpu::CombineArguments& all) override {
    real_.combine(device, type, all);
    come_to(FakeGpus::Moment::combining);
  }
  gpu::Stream make_stream(int device) override { return real_.make_stream(device); }
  void end_stream(int device, gpu::Stream stream) noexcept override { real_.end_stream(device, stream); }
  int device_of(gpu::Stream stream) override { return real_.device_of(stream); }
  std::shared_ptr<gpu::StreamMark> mark(int device, gpu::Stream stream) override { return real_.mark(device, stream); }
  void wait_for(int device, gpu::Stream stream, gpu::StreamMark& mark) override {
    real_.wait_for(device, stream, mark);
  }
  std::shared_ptr<gpu::StreamMark> mark_time(int device, gpu::Stream stream) override {
    return real_.mark_time(device, stream);
  }
  double microseconds(gpu::StreamMark& from, gpu::StreamMark& to) override { return real_.microseconds(from, to); }
  std::unique_ptr<gpu::DeviceEvent> open(int device, const gpu::IpcEventHandle& theirs) override {
    come_to(FakeGpus::Moment::opening);
    return real_.open(device, theirs);
  }
  void begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) override {
    real_.begin_copy(device, to, from, bytes, stream);
    if (before_copies_) before_copies_();
  }
  // While it runs: who has launched it dies at once.
  void begin_combine(int device, DataType type, const gpu::CombineArguments& all, gpu::Stream stream) override {
    real_.begin_combine(device, type, all, stream);
    come_to(FakeGpus::Moment::combining);
  }
  void begin_pack(int device, const gpu::PackArguments& all, bool packs, gpu::Stream stream) override {
    real_.begin_pack(device, all, packs, stream);
  }
  void begin_own(int device, const std::function<void()>& own) override { real_.begin_own(device, own); }
  bool is_captured(gpu::Stream stream) override { return real_.is_captured(stream); }
  void wait(gpu::Stream stream) override { real_.wait(stream); }

 protected:
  std::unique_ptr<gpu::DeviceEvent> make_event(int device) override { return (real_.*(&Inside::make_event))(device); }
  bool begin_pinning(std::byte* memory, std::size_t bytes) noexcept override {
    return (real_.*(&Inside::begin_pinning))(memory, bytes);
  }
  void end_pinning(std::byte* memory) noexcept override { (real_.*(&Inside::end_pinning))(memory); }

 private:
  void come_to(FakeGpus::Moment moment) {
    if (const auto& hook = hooks_[static_cast<std::size_t>(moment)]) hook();
  }

  gpu::DeviceBackend& real_;
  std::array<std::function<void()>, 4> hooks_;
  std::function<void()> before_copies_;
  std::atomic<std::size_t> living_ = 0;
};

class RealOnes final : public DeadlyGpus {
 public:
  RealOnes() : instead_(std::make_unique<WatchedProcess>(*gpu::own_backend())) {}
  void at(Moment moment, std::function<void()> hook) override { watched().at(moment, std::move(hook)); }
  void before_copies(std::function<void()> hook) override { watched().before_copies(std::move(hook)); }
  void put(gpu::Stream stream, std::function<void()> work) override {
    auto* const kept = new std::function<void()>(std::move(work));
    const auto run = [](void* given) {
      const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(given));
      (*own)();
    };
    if (const auto status = cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), run, kept); status != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(status));
  }
  std::size_t living() const override { return watched().living(); }

 private:
  WatchedProcess& watched() const { return static_cast<WatchedProcess&>(instead_.backend()); }
  gpu::BackendOverride instead_;
};

}  // namespace

std::unique_ptr<DeadlyGpus> deadly_gpus_of_the_machine() {
  return gpu::own_backend() == nullptr ? nullptr : std::make_unique<RealOnes>();
}

}  // namespace lockstep::test
