// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process as collectives see them: whose memory an address is in, memory to be had, and copies. Behind
// it is CUDA where there is a GPU; tests put something of their own there, whose memory the host cannot touch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/gpu/costs.hpp"
#include "collectives/spec.hpp"

namespace lockstep::gpu {

struct CombineArguments;
struct PackArguments;

// Whose memory an address is in. What the host may read and write, such as pinned and managed memory, is the host's.
struct MemoryLocation {
  static constexpr int host = -1;
  int device = host;
  bool on_device() const { return device != host; }
  bool operator==(const MemoryLocation&) const = default;
};

// CUDA's cudaStream_t; null: the default stream of a device.
using Stream = void*;

// What has been put into a stream until now.
class StreamMark {
 public:
  StreamMark() = default;
  virtual ~StreamMark() = default;
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;
  // Whether all of that is done; throws Error device where something of it failed.
  virtual bool is_reached() = 0;
};

// An event as other processes find it.
struct IpcEventHandle {
  std::array<std::byte, 64> handle{};
  std::uint64_t number = 0;  // that no other event of its process has
};

// A mark that is made anew again and again, of what is in streams of one GPU. Nothing was marked yet: it is reached.
class DeviceEvent : public StreamMark {
 public:
  // Who waits for what it marked before was put behind it by then.
  virtual void record(Stream stream) = 0;
  // Nothing, where other processes cannot open it.
  virtual std::optional<IpcEventHandle> show() = 0;
  // Of another process, which has died before it came to what it marked: what this process has put behind that goes on.
  virtual void let_go() = 0;
};

// `blocks` runs of `bytes`, whose beginnings lie `stride` bytes apart.
struct StridedRuns {
  std::byte* first = nullptr;
  std::size_t stride = 0;
};

// An allocation as other processes find it.
struct IpcMemoryHandle {
  std::array<std::byte, 64> handle{};
  std::uint64_t number = 0;  // that no other allocation of its process has had
  std::uintptr_t base = 0;   // its first byte, there
  // The last ones of those shown before that are no more; 0: none.
  std::array<std::uint64_t, 8> gone{};
};

class DeviceBackend {
 public:
  DeviceBackend() = default;
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  virtual int devices() const = 0;
  // From here on the calling thread's GPU, where what names none is done; and again what it was before, or none yet.
  virtual void enter(int device) = 0;
  virtual void leave() noexcept = 0;
  // What takes long, or waits for what is on a GPU, when it is needed first: done now on all that are in use already.
  // What fails will fail again where it is needed.
  virtual void prepare() noexcept {}
  // The serial that no two GPUs share, wherever they are.
  virtual std::string id(int device) const = 0;
  virtual MemoryLocation where(const void* address) const = 0;

  // Of a device, or of the host where devices copy from and to it at full speed. Throw Error out_of_memory or device.
  virtual std::byte* allocate(int device, std::size_t bytes) = 0;
  virtual void free(int device, std::byte* memory) noexcept = 0;
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(std::byte* memory) noexcept = 0;

  // The allocation an address is in; nothing, where other processes cannot map it.
  virtual std::optional<IpcMemoryHandle> show(const void* address) = 0;
  // What another process has shown, as this process reaches it through that device. Throws Error device.
  virtual std::byte* map(int device, const IpcMemoryHandle& theirs) = 0;
  virtual void unmap(int device, std::byte* memory) noexcept = 0;

  // Pinned memory for staging, which is kept for the next one who needs as much. Nothing for nothing.
  std::shared_ptr<std::byte> pinned(std::size_t bytes);
  // What nobody has now.
  void free_kept();
  // Makes memory that the host has already as quick to copy from and to as pinned memory, while somebody holds what is
  // returned, which holds the memory as well. Nothing, where the system does not do that: copies are right all the
  // same.
  std::shared_ptr<const void> pin(std::shared_ptr<std::byte> memory, std::size_t bytes);

  // Between this device's memory and any other; done when it returns. It comes after what was begun before in the
  // device's default stream, and so in all that are ordered with that one, as a copy by cudaMemcpy does.
  virtual void copy(int device, StridedRuns to, StridedRuns from, std::size_t bytes, std::size_t blocks) = 0;
  // Pieces in this device's memory into one stretch of it or of pinned memory, or back, by one launch; as copy().
  virtual void pack(int device, const PackArguments& all, bool packs) = 0;
  // The parts of several members, in this device's memory, into the results there; as copy().
  virtual void combine(int device, DataType type, const CombineArguments& all) = 0;

  // Into a stream, without waiting for what is in it. A stream of our own waits for no other, and no other for it, not
  // the default one either: what the program puts there later runs beside what is in ours.
  virtual Stream make_stream(int device) = 0;
  virtual void end_stream(int device, Stream stream) noexcept = 0;
  // Of the default stream: the thread's current one.
  virtual int device_of(Stream stream) = 0;
  // Without a device: the stream's own, or the thread's current one.
  virtual std::shared_ptr<StreamMark> mark(int device, Stream stream) = 0;
  // For what is marked now, whatever is marked by it later.
  virtual void wait_for(int device, Stream stream, StreamMark& mark) = 0;
  // What comes into the stream later, behind what is in another one now. By CUDA's rules the default stream comes after
  // all streams of its GPU but those that were made not to wait for it (cudaStreamNonBlocking).
  void come_after(int device, Stream stream, int other_device, Stream other) {
    wait_for(device, stream, *mark(other_device, other));
  }
  void come_after_default(int device, Stream stream) { come_after(device, stream, device, nullptr); }
  // A mark that knows when it was reached, by the device's clock; and how long that was after an earlier one in the
  // same stream, both being reached.
  virtual std::shared_ptr<StreamMark> mark_time(int device, Stream stream) = 0;
  virtual double microseconds(StreamMark& from, StreamMark& to) = 0;
  // Made once and kept for the next one who needs one: others may know it as long as the process lives. Who gives it
  // back knows that nobody will wait for it any more.
  DeviceEvent& take_event(int device);
  void give_back(DeviceEvent& event);
  // Who gives it back will know that when this says so; it is asked now and then, by any thread.
  void give_back_when(DeviceEvent& event, std::function<bool()> nobody_waits);
  // That nobody has given back so far.
  std::size_t events_in_use();
  // Another process's.
  virtual std::unique_ptr<DeviceEvent> open(int device, const IpcEventHandle& theirs) = 0;
  virtual void begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) = 0;
  virtual void begin_combine(int device, DataType type, const CombineArguments& all, Stream stream) = 0;
  virtual void begin_pack(int device, const PackArguments& all, bool packs, Stream stream) = 0;
  // What the user's own code puts into a stream of that device, which is the thread's while it does so.
  virtual void begin_own(int device, const std::function<void()>& own) = 0;
  // Whether what is put into it is not done but kept, to be done later and again (CUDA's graphs).
  virtual bool is_captured(Stream stream) = 0;
  // Returns when all that is in it is done.
  virtual void wait(Stream stream) = 0;

  // What work on a device takes, measured when first asked for; the same for all threads from then on. Nothing is
  // thrown: what cannot be measured costs nothing, and fails where it is done.
  DeviceCosts costs(int device);

 protected:
  virtual std::unique_ptr<DeviceEvent> make_event(int device) = 0;
  virtual DeviceCosts measure_costs(int device);
  // Those of a device that has been reset: nobody can use them.
  void forget_events(int device);
  // To be measured in, and given back without waiting for what else is on the device.
  virtual std::shared_ptr<std::byte> allocate_for_a_moment(int device, std::size_t bytes);
  // Of the clock that they are measured by.
  virtual double now_us() const;
  // Whether it did.
  virtual bool begin_pinning(std::byte* memory, std::size_t bytes) noexcept = 0;
  virtual void end_pinning(std::byte* memory) noexcept = 0;

 private:
  struct PinnedMemory {
    std::size_t bytes = 0;  // 0: none
    std::byte* memory = nullptr;
  };
  struct CachedEvent {
    std::unique_ptr<DeviceEvent> event;
    int device = 0;
    bool is_free = false;
    std::function<bool()> nobody_waits = {};  // nothing: somebody has it, or nobody
  };
  void look_for_free();
  std::byte* take_kept(std::size_t bytes);
  bool keep(std::byte* memory, std::size_t bytes);
  void unpin(std::byte* memory) noexcept;

  std::mutex mutex_;
  std::array<PinnedMemory, 32> kept_;
  std::vector<CachedEvent> events_;
  std::mutex measuring_;
  std::vector<std::optional<DeviceCosts>> costs_;  // by device
  std::map<std::byte*, int> holders_;              // of what pin() has pinned
};

// What the process has itself, whatever the tests have put there.
DeviceBackend* own_backend();

namespace detail {
// Every call on data asks: it costs a load where it is known.
inline std::atomic<bool> is_known = false;
inline std::atomic<DeviceBackend*> current = nullptr;
DeviceBackend* find();
}  // namespace detail

// What this process has; nothing where it sees no GPU, or the build has no CUDA.
inline DeviceBackend* backend() {
  if (!detail::is_known.load(std::memory_order_acquire)) [[unlikely]]
    return detail::find();
  return detail::current.load(std::memory_order_acquire);
}
// Why there is none, for people; empty where there is one.
std::string why_none();
// Puts another one in its place, or none, until it is gone: for tests.
class BackendOverride {
 public:
  explicit BackendOverride(std::unique_ptr<DeviceBackend> backend);
  ~BackendOverride();
  BackendOverride(const BackendOverride&) = delete;
  BackendOverride& operator=(const BackendOverride&) = delete;
  DeviceBackend& backend() const { return *backend_; }

 private:
  std::unique_ptr<DeviceBackend> backend_;
  DeviceBackend* before_;
};

// While it lives, a GPU is the calling thread's own.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);  // host: nothing changes
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool has_entered_;
};

inline MemoryLocation where(const void* address) {
  const DeviceBackend* const all = backend();
  return all == nullptr ? MemoryLocation{} : all->where(address);
}

// By the build: with CUDA, or without. Nothing, and why, where there is no GPU.
std::unique_ptr<DeviceBackend> make_backend(std::string& why_none);

}  // namespace lockstep::gpu
