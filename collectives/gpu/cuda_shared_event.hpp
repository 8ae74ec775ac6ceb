// SPDX-License-Identifier: Apache-2.0
// Holds events that processes share, as words in shared memory: a stream writes a number there, and others wait for it.
// CUDA's own events would block forever if a process dies before its stream reaches one, and freeing GPU memory would
// block, too.
// Each process therefore waits for a word of its own. It writes that word itself once it learns of the death, so no
// stream goes on before its program knows.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/gpu/cuda_event.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::gpu {

// Holds the words of one event, in host memory that GPUs write.
struct alignas(64) EventFlags {
  // Limits the processes that share an event, the recording one included.
  static constexpr std::uint32_t readers = 8;
  std::atomic<std::uint32_t> recorded;  // the number of the last mark; the recording process writes it
  std::atomic<std::uint32_t> taken;     // words of `reached` that other processes have taken
  std::array<std::uint32_t, 6> nothing;
  // Holds one word per process: the last number that its streams may pass.
  std::array<std::atomic<std::uint32_t>, readers> reached;
};

// Holds one page of events, of this process or of another one. It registers the page with the GPUs and never
// unregisters it, because that would wait for the GPUs' work.
class EventFlagPage {
 public:
  static constexpr std::size_t bytes = 4096;
  static constexpr std::size_t lines = bytes / sizeof(EventFlags);
  // Throws Error device if the GPUs cannot reach the memory.
  explicit EventFlagPage(SharedMemory memory);
  // Returns the text by which another process opens the page.
  std::string ticket() const { return memory_.ticket(); }
  // Return the words of an event, for the host and as the GPUs' address.
  EventFlags& flags(std::size_t line) const;
  CUdeviceptr on_gpu(std::size_t line) const { return on_gpu_ + line * sizeof(EventFlags); }

 private:
  SharedMemory memory_;
  CUdeviceptr on_gpu_ = 0;
};

// Is one process's view of a shared event.
class CudaSharedEvent final : public CudaMark {
 public:
  // Uses a line of the page and, in it, the word of this process. `shown` is the handle that show() returns.
  CudaSharedEvent(int device, std::shared_ptr<const EventFlagPage> page, std::size_t line, std::uint32_t reader,
                  IpcEventHandle shown);
  // Throws Error device if work on the GPU has failed.
  bool is_reached() override;
  void record(Stream stream) override;
  std::optional<IpcEventHandle> show() override { return shown_; }
  void release_waits() override;
  void come_before(int device, Stream stream) const override;

 private:
  std::uint32_t recorded() const { return flags_.recorded.load(std::memory_order_acquire); }

  std::shared_ptr<const EventFlagPage> page_;
  EventFlags& flags_;
  CUdeviceptr on_gpu_;
  std::uint32_t reader_;
  IpcEventHandle shown_;
  CudaEvent health_;  // never recorded; reports failures of the GPU
};

// Makes shared events and opens those of others. Any thread may call it.
class SharedEventPool {
 public:
  // Makes an event of this process. Throws Error device or environment if processes cannot share it.
  std::unique_ptr<DeviceEvent> make(int device);
  // Opens another process's event. Throws Error bad_message if the handle is damaged, device if too many processes
  // share the event.
  std::unique_ptr<DeviceEvent> open(int device, const IpcEventHandle& theirs);
  // Drops the pages after a device was reset, since GPUs do not know them any more. Events that exist keep theirs.
  void forget();

 private:
  // Tells another process where an event is; it fits into IpcEventHandle's bytes.
  struct EventFlagAddress {
    std::array<char, 56> ticket;  // the page's ticket, filled up with zeros
    std::uint32_t line;
  };

  std::mutex mutex_;
  std::shared_ptr<const EventFlagPage> own_;
  std::size_t next_line_ = 0;
  // Keeps dropped pages, because GPUs that were not reset still know them.
  std::vector<std::shared_ptr<const EventFlagPage>> forgotten_;
  std::uint64_t made_ = 0;
  std::map<std::string, std::shared_ptr<const EventFlagPage>> theirs_;  // by ticket
  // Remembers this process's word in each line, by ticket and line.
  std::map<std::pair<std::string, std::uint32_t>, std::uint32_t> readers_;
};

}  // namespace lockstep::gpu
