// SPDX-License-Identifier: Apache-2.0
// GPUs for machines without one. Their memory is mapped so that the host cannot look into it: who does not go by the
// layer crashes. Copies are counted, and fail where they are told to. Memory that was freed is no GPU's any more, is
// not had again for a while, and is refused where it is given to the layer; who touches it crashes. Streams are ordered
// as CUDA orders them: the default stream of a GPU and the ordinary ones there wait for each other; the layer's own,
// and those that a program makes apart from it (cudaStreamNonBlocking), wait for nobody.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "collectives/gpu/device_backend.hpp"
#include "tests/collectives/gpu/fake_stream.hpp"

namespace lockstep::test {

class FakeGpus final : public gpu::DeviceBackend {
 public:
  explicit FakeGpus(int devices) : devices_(devices) {}
  ~FakeGpus() override;

  int devices() const override { return devices_; }
  void enter(int device) override;
  void leave() noexcept override;
  static int used();  // by the calling thread
  std::string id(int device) const override;
  gpu::MemoryLocation where(const void* address) const override;
  std::byte* allocate(int device, std::size_t bytes) override;
  void free(int device, std::byte* memory) noexcept override;
  std::byte* allocate_pinned(std::size_t bytes) override;
  void free_pinned(std::byte* memory) noexcept override;
  std::optional<gpu::IpcMemoryHandle> show(const void* address) override;
  std::byte* map(int device, const gpu::IpcMemoryHandle& theirs) override;
  void unmap(int device, std::byte* memory) noexcept override { free(device, memory); }
  void copy(int device, gpu::StridedRuns to, gpu::StridedRuns from, std::size_t bytes, std::size_t blocks) override;

  void pack(int device, const gpu::PackArguments& all, bool packs) override;
  void combine(int device, DataType type, const gpu::CombineArguments& all) override;

  gpu::Stream make_stream(int device) override;
  void end_stream(int device, gpu::Stream stream) noexcept override;
  // As a program does with cudaStreamCreate().
  gpu::Stream make_ordinary_stream(int device);
  std::shared_ptr<gpu::StreamMark> mark(int device, gpu::Stream stream) override;
  std::shared_ptr<gpu::StreamMark> mark_time(int device, gpu::Stream stream) override;
  double microseconds(gpu::StreamMark& from, gpu::StreamMark& to) override {
    return FakeStream::microseconds(from, to);
  }
  int device_of(gpu::Stream stream) override { return of(used(), stream).device(); }
  void wait_for(int device, gpu::Stream stream, gpu::StreamMark& mark) override;
  std::unique_ptr<gpu::DeviceEvent> open(int device, const gpu::IpcEventHandle& theirs) override;
  void begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) override;
  void begin_combine(int device, DataType type, const gpu::CombineArguments& all, gpu::Stream stream) override;
  void begin_pack(int device, const gpu::PackArguments& all, bool packs, gpu::Stream stream) override;
  void begin_own(int device, const std::function<void()>& own) override;
  bool is_captured(gpu::Stream stream) override { return of(used(), stream).is_captured(); }
  void wait(gpu::Stream stream) override;
  void capture(gpu::Stream stream) { of(used(), stream).capture(); }
  auto take_captured(gpu::Stream stream) { return of(used(), stream).take_captured(); }
  // Work of the tests' own. The default stream is that of the GPU, or of the thread's own.
  void put(gpu::Stream stream, std::function<void()> work) { put(used(), stream, std::move(work)); }
  void put(int device, gpu::Stream stream, std::function<void()> work);
  // Where the layer itself reaches memory, of a device or not; throws where so much is not there.
  std::byte* reach(const void* address, std::size_t bytes) const { return inside(address, bytes); }

  // Called by a stream's thread before it copies what begin_copy() was given.
  enum class Way : std::uint8_t { down, up, within };
  void before_copies(std::function<void(Way, std::size_t bytes)> hook);
  // Called whenever memory is shown or mapped, or an event opened, by who asks for that; and in the middle of what is
  // combined.
  enum class Moment : std::uint8_t { showing, mapping, opening, combining };
  void at(Moment moment, std::function<void()> hook);

  int copies() const { return copies_; }
  int launches() const { return launches_; }
  int pinnings() const { return pinnings_; }
  int mappings() const { return mappings_; }
  int marks_of_time() const { return marks_of_time_; }
  int events() const { return events_; }  // made or opened
  // Stretches of the host's memory that are pinned now.
  int pinned_places() const { return pinned_places_; }
  int frees() const { return frees_; }
  // Allocations that nobody has freed.
  std::size_t living() const;

  // Of the thread that calls it: the copy after so many more fails, and so does all pinning.
  static void fail_copy_after(int more);
  static void break_copy_after(int more);   // the same, but it was begun well, and fails in its stream
  static void refuse_to_pin(bool refuses);  // memory that is there
  static void fail_pinning(bool fails);
  static void fail_allocation_after(int more);  // the one after so many more
  static void fail_mapping(bool fails);
  static void fail_opening(bool fails);  // of events
  static void fail_streams(bool fails);  // that are made

  // What work takes while it is measured, by a clock that nothing else moves; unless told otherwise, as GPUs have it:
  // whatever goes by the host is slow. Before it is measured.
  void take(const gpu::DeviceCosts& costs) { taken_ = costs; }
  int measurings() const { return measurings_; }
  void fail_measuring() { measuring_fails_ = true; }

 protected:
  std::unique_ptr<gpu::DeviceEvent> make_event(int device) override;
  gpu::DeviceCosts measure_costs(int device) override;
  double now_us() const override;
  bool begin_pinning(std::byte* memory, std::size_t bytes) noexcept override;
  void end_pinning(std::byte* memory) noexcept override;

 private:
  struct Block {
    int device;
    std::size_t bytes;
    std::byte* inside;  // where the layer itself can reach it
    int file;           // that other processes open
    std::uint64_t number;
    bool was_shown = false;
  };
  // `device`: it has to be there.
  std::byte* inside(const void* address, std::size_t bytes, int device = gpu::MemoryLocation::host) const;
  static void fail_if_told(int device);
  // Whether it is only measured; then the clock goes on.
  static bool is_measured(const gpu::LinearCost& cost, std::size_t bytes);
  std::byte* take(int device, std::size_t bytes, int file, std::uint64_t number);
  void come_to(Moment moment) const;
  bool is_freed(const void* address) const;
  void refuse_freed(int device, const void* address) const;
  void pack_now(int device, const gpu::PackArguments& all, bool packs) const;
  void combine_now(int device, DataType type, const gpu::CombineArguments& all) const;
  FakeStream& of(int device, gpu::Stream stream);
  std::vector<std::function<bool()>> before(const FakeStream& stream);
  void wait_for_default(int device);
  void copy_now(std::byte* to, const std::byte* from, std::size_t bytes) const;

  int devices_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
  std::map<const std::byte*, std::size_t> freed_;  // bytes, of addresses that are kept from others
  std::deque<const std::byte*> order_of_freeing_;
  std::array<std::uint64_t, 8> gone_{};
  gpu::DeviceCosts taken_ = {.launch = {2000, 1000}, .copy = {400, 1000}, .down = {9000, 40'000}, .up = {9000, 40'000}};
  std::atomic<int> measurings_ = 0;
  bool measuring_fails_ = false;
  std::atomic<int> copies_ = 0;
  std::atomic<int> launches_ = 0;
  std::atomic<int> pinnings_ = 0;
  std::atomic<int> mappings_ = 0;
  std::atomic<int> marks_of_time_ = 0;
  std::atomic<int> events_ = 0;
  std::atomic<int> frees_ = 0;
  std::atomic<int> pinned_places_ = 0;
  std::function<void(Way, std::size_t)> before_copies_;
  std::array<std::function<void()>, 4> at_moments_;
  std::mutex streams_mutex_;
  std::atomic<int> made_streams_{0};                     // and not ended
  std::map<int, std::unique_ptr<FakeStream>> defaults_;  // by device, made when they are first needed
  std::set<FakeStream*> ordinary_;
};

// A stream of the tests' own, which does what is in it before it ends; and an ordinary one.
class OwnStream {
 public:
  explicit OwnStream(FakeGpus& gpus, int device = 0) : OwnStream(gpus, gpus.make_stream(device)) {}
  ~OwnStream() { gpus_.end_stream(0, stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  gpu::Stream get() const { return stream_; }
  void put(std::function<void()> work) const { gpus_.put(stream_, std::move(work)); }
  void wait() const { gpus_.wait(stream_); }

 protected:
  OwnStream(FakeGpus& gpus, gpu::Stream stream) : gpus_(gpus), stream_(stream) {}

 private:
  FakeGpus& gpus_;
  gpu::Stream stream_;
};

class OrdinaryStream : public OwnStream {
 public:
  explicit OrdinaryStream(FakeGpus& gpus, int device = 0) : OwnStream(gpus, gpus.make_ordinary_stream(device)) {}
};

}  // namespace lockstep::test
