// SPDX-License-Identifier: Apache-2.0
// Declares the interface through which collectives use the GPUs of this process: memory, copies, streams and launches.
// CUDA implements it if there is a GPU. Tests replace it by a fake; the host cannot touch the fake's memory.
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
#include "collectives/gpu/memory_location.hpp"
#include "collectives/gpu/stream.hpp"
#include "collectives/spec.hpp"

namespace lockstep::gpu {

struct CombineArguments;
struct PackArguments;

// Marks the work that a stream holds at one moment.
class StreamMark {
 public:
  StreamMark() = default;
  virtual ~StreamMark() = default;
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;
  // Returns true if all of that work is done. Throws Error device if some of it failed. Does not wait.
  virtual bool is_reached() = 0;
};

// Lets another process open an event. Only the backend reads `handle`.
struct IpcEventHandle {
  std::array<std::byte, 64> handle{};
  std::uint64_t number = 0;  // no other event of the same process has it
};

// Is a mark that can be recorded again and again, in streams of one GPU. It counts as reached before the first record.
class DeviceEvent : public StreamMark {
 public:
  // Marks the work now in the stream. Streams that were made to wait for an earlier mark still wait for that one.
  // Throws Error device.
  virtual void record(Stream stream) = 0;
  // Returns the handle by which other processes open the event, or nothing if they cannot.
  virtual std::optional<IpcEventHandle> show() = 0;
  // Releases this process's streams that wait for the last mark. It is for another process's event, after that process
  // died before its stream reached the mark.
  virtual void release_waits() = 0;
};

// Describes one side of a strided copy: runs of equal length that begin `stride` bytes apart. One run needs no stride.
// The caller owns the memory.
struct StridedRuns {
  std::byte* first = nullptr;
  std::size_t stride = 0;
};

// Lets another process map an allocation of GPU memory. Only the backend reads `handle`.
struct IpcMemoryHandle {
  std::array<std::byte, 64> handle{};
  std::uint64_t number = 0;  // no other allocation of the same process ever had it
  std::uintptr_t base = 0;   // address of the first byte, in the owner's process
  // Holds the numbers of shown allocations that were freed since, newest first; 0: none. It keeps only the last eight.
  std::array<std::uint64_t, 8> gone{};
};

// Gives access to all GPUs of this process, numbered from 0. Any thread may call it. Work that fails throws Error
// device unless a comment says otherwise.
class DeviceBackend {
 public:
  DeviceBackend() = default;
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  virtual int devices() const = 0;
  // Makes a GPU the calling thread's current one; leave() restores the one before, or none. Calls come in pairs.
  virtual void enter(int device) = 0;
  virtual void leave() noexcept = 0;
  // Does the slow parts of first use now, such as loading kernels, on all GPUs that the process already uses. Later
  // they would wait for all work on the GPU. Failures are ignored here and show when the GPU is used.
  virtual void prepare() noexcept {}
  // Returns the GPU's serial, which is unique across machines.
  virtual std::string id(int device) const = 0;
  // Returns the location of an address. An address that no GPU knows is the host's.
  virtual MemoryLocation where(const void* address) const = 0;

  // Allocate and free a GPU's memory, or pinned memory of the host, which GPUs copy from and to at full speed. The
  // caller owns the memory. Allocating throws Error out_of_memory or device.
  virtual std::byte* allocate(int device, std::size_t bytes) = 0;
  virtual void free(int device, std::byte* memory) noexcept = 0;
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(std::byte* memory) noexcept = 0;

  // Returns the handle of the allocation that holds the address, or nothing if other processes cannot map it.
  virtual std::optional<IpcMemoryHandle> show(const void* address) = 0;
  // Maps another process's allocation for that GPU and returns its first byte here; unmap() ends the mapping. The other
  // process still owns the memory. Throws Error device.
  virtual std::byte* map(int device, const IpcMemoryHandle& theirs) = 0;
  virtual void unmap(int device, std::byte* memory) noexcept = 0;

  // Returns pinned memory for staging. Once released it is kept for the next request of about that size, because
  // pinning is slow. Returns null for 0 bytes. Throws as allocate_pinned() does. The backend must outlive the memory.
  std::shared_ptr<std::byte> pinned(std::size_t bytes);
  // Frees the pinned memory that is kept and not in use.
  void free_kept();
  // Pins existing host memory, so that copies run at full speed, until the last holder of the result releases it. The
  // result keeps the memory alive as well. Returns null if the system cannot pin it; copies are correct either way.
  std::shared_ptr<const void> pin(std::shared_ptr<std::byte> memory, std::size_t bytes);

  // Copies `blocks` runs of `bytes` each between this GPU's memory and any other, and waits for the end. The copy comes
  // after earlier work in the GPU's default stream, and in streams ordered with it, as cudaMemcpy does.
  virtual void copy(int device, StridedRuns to, StridedRuns from, std::size_t bytes, std::size_t blocks) = 0;
  // Packs pieces of this GPU's memory into one stretch of GPU or pinned memory by one launch; unpacks if `packs` is
  // false. Waits and is ordered as copy() is.
  virtual void pack(int device, const PackArguments& all, bool packs) = 0;
  // Reduces the parts of several ranks, all in this GPU's memory, into results there. Waits, and is ordered, like
  // copy().
  virtual void combine(int device, DataType type, const CombineArguments& all) = 0;

  // Makes a stream, which the caller owns and ends. It is not ordered with any other stream, not even the default one.
  // Later work of the program therefore runs beside ours.
  virtual Stream make_stream(int device) = 0;
  virtual void end_stream(int device, Stream stream) noexcept = 0;
  // Returns the GPU of a stream. For the default stream that is the thread's current GPU.
  virtual int device_of(Stream stream) = 0;
  // Marks the work now in a stream. If `device` is MemoryLocation::host, the stream's own GPU counts; for the default
  // stream that is the thread's current GPU.
  virtual std::shared_ptr<StreamMark> mark(int device, Stream stream) = 0;
  // Makes later work in the stream wait for the mark. If the mark is recorded again, the wait stays with the earlier
  // record. The host does not wait.
  virtual void wait_for(int device, Stream stream, StreamMark& mark) = 0;
  // Makes later work in a stream wait for the work that another stream holds now. CUDA orders the default stream after
  // all streams of its GPU, except those made with cudaStreamNonBlocking.
  void come_after(int device, Stream stream, int other_device, Stream other) {
    wait_for(device, stream, *mark(other_device, other));
  }
  void come_after_default(int device, Stream stream) { come_after(device, stream, device, nullptr); }
  // Makes a mark that records the GPU's time when it is reached.
  virtual std::shared_ptr<StreamMark> mark_time(int device, Stream stream) = 0;
  // Returns the microseconds between two such marks of one stream. Both must have been reached.
  virtual double microseconds(StreamMark& from, StreamMark& to) = 0;
  // Lends an event of that GPU, and takes it back. The backend owns events and reuses them, because other processes may
  // know them as long as this one lives. An event may come back only if no stream will wait for it any more.
  DeviceEvent& take_event(int device);
  void give_back(DeviceEvent& event);
  // Takes an event back once `nobody_waits` returns true. Any thread may call that function, now and then, under the
  // backend's lock.
  void give_back_when(DeviceEvent& event, std::function<bool()> nobody_waits);
  // Returns the number of lent events that have not come back.
  std::size_t events_in_use();
  // Opens another process's event for that GPU.
  virtual std::unique_ptr<DeviceEvent> open(int device, const IpcEventHandle& theirs) = 0;
  // Put a copy, a reduction or a packing into a stream and return without waiting. The memory must stay until it is
  // done.
  virtual void begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) = 0;
  virtual void begin_combine(int device, DataType type, const CombineArguments& all, Stream stream) = 0;
  virtual void begin_pack(int device, const PackArguments& all, bool packs, Stream stream) = 0;
  // Runs the user's own code, which puts work into a stream of that GPU. The GPU is the thread's current one meanwhile.
  // Throws Error device if a launch failed.
  virtual void begin_own(int device, const std::function<void()>& own) = 0;
  // Returns true if a CUDA graph captures the stream: its work is then recorded for later instead of done.
  virtual bool is_captured(Stream stream) = 0;
  // Blocks until all work in the stream is done. Throws Error device if some of it failed.
  virtual void wait(Stream stream) = 0;

  // Returns the times of work on a GPU. The first call measures them, and all threads get the same times from then on.
  // If measuring throws an Error, all times are zero: the failure shows again when the GPU is used.
  DeviceCosts costs(int device);

 protected:
  // Makes an event of that GPU, which other processes can open if the system allows it.
  virtual std::unique_ptr<DeviceEvent> make_event(int device) = 0;
  // Measures the times of work on a GPU. Throws Error if it cannot.
  virtual DeviceCosts measure_costs(int device);
  // Drops the idle events of a GPU after a reset, without freeing them: they are invalid.
  void forget_events(int device);
  // Allocates GPU memory for a measurement. Releasing it should not wait for other work on the GPU.
  virtual std::shared_ptr<std::byte> allocate_for_a_moment(int device, std::size_t bytes);
  // Returns the time in microseconds, by the clock that measures costs.
  virtual double now_us() const;
  // Pins host memory and returns true, or returns false if the system cannot. end_pinning() undoes it.
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
    std::function<bool()> nobody_waits = {};  // empty unless give_back_when() was called
  };
  // Takes back events whose `nobody_waits` has become true. The caller holds mutex_.
  void look_for_free();
  // Returns kept memory of exactly that size, or null.
  std::byte* take_kept(std::size_t bytes);
  // Returns false if the memory is too much to keep; the caller then frees it.
  bool keep(std::byte* memory, std::size_t bytes);
  void unpin(std::byte* memory) noexcept;

  std::mutex mutex_;
  std::array<PinnedMemory, 32> kept_;
  std::vector<CachedEvent> events_;
  std::mutex measuring_;
  std::vector<std::optional<DeviceCosts>> costs_;  // by device
  std::map<std::byte*, int> holders_;              // number of holders of memory pinned by pin()
};

// Returns the process's real backend even while a BackendOverride is set; null if there is none.
DeviceBackend* own_backend();

namespace detail {
// Cache the answer of find(): every call on data asks for the backend, and this costs only a load.
inline std::atomic<bool> is_known = false;
inline std::atomic<DeviceBackend*> current = nullptr;
DeviceBackend* find();
}  // namespace detail

// Returns the backend in use, which lives as long as the process unless a test overrides it. Returns null if the
// process sees no GPU or the build has no CUDA.
inline DeviceBackend* backend() {
  if (!detail::is_known.load(std::memory_order_acquire)) [[unlikely]]
    return detail::find();
  return detail::current.load(std::memory_order_acquire);
}
// Returns the reason, for people, why there is no backend; empty if there is one.
std::string why_none();
// Replaces the backend for a test, by null too, until it is destroyed. It owns the replacement.
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

// Makes a GPU the calling thread's current one until it is destroyed.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);  // MemoryLocation::host changes nothing
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool has_entered_;
};

// Returns the location of an address; the host if there is no backend.
inline MemoryLocation where(const void* address) {
  const DeviceBackend* const all = backend();
  return all == nullptr ? MemoryLocation{} : all->where(address);
}

// Makes the backend of this build. Returns null and sets `why_none` if there is no GPU, or no CUDA in the build.
std::unique_ptr<DeviceBackend> make_backend(std::string& why_none);

}  // namespace lockstep::gpu
