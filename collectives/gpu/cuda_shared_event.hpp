// SPDX-License-Identifier: Apache-2.0
// Events that processes share, as words in memory that both have: a stream writes there what it has come to, and others
// wait for it. Events of CUDA's own would do, were it not for a process that dies before its stream has come to one:
// what waits for that waits for ever, and with it all that frees memory of the GPU. Every process waits for a word of
// its own, which it writes itself when it has been told of the death: so no stream goes on before its program knows.
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

// Those of an event, in memory of the host that GPUs write.
struct alignas(64) EventFlags {
  static constexpr std::uint32_t readers = 8;  // processes, the one that records among them
  std::atomic<std::uint32_t> recorded;
  std::atomic<std::uint32_t> taken;  // of `reached`, by others
  std::array<std::uint32_t, 6> nothing;
  std::array<std::atomic<std::uint32_t>, readers> reached;
};

// A page of them, of this process or another one, as GPUs know it from now on: that waits for what is on them to be
// taken back, so it stays.
class EventFlagPage {
 public:
  static constexpr std::size_t bytes = 4096;
  static constexpr std::size_t lines = bytes / sizeof(EventFlags);
  explicit EventFlagPage(SharedMemory memory);
  std::string ticket() const { return memory_.ticket(); }
  EventFlags& flags(std::size_t line) const;
  CUdeviceptr on_gpu(std::size_t line) const { return on_gpu_ + line * sizeof(EventFlags); }

 private:
  SharedMemory memory_;
  CUdeviceptr on_gpu_ = 0;
};

class CudaSharedEvent final : public CudaMark {
 public:
  CudaSharedEvent(int device, std::shared_ptr<const EventFlagPage> page, std::size_t line, std::uint32_t reader,
                  IpcEventHandle shown);
  bool is_reached() override;
  void record(Stream stream) override;
  std::optional<IpcEventHandle> show() override { return shown_; }
  void let_go() override;
  void come_before(int device, Stream stream) const override;

 private:
  std::uint32_t recorded() const { return flags_.recorded.load(std::memory_order_acquire); }

  std::shared_ptr<const EventFlagPage> page_;
  EventFlags& flags_;
  CUdeviceptr on_gpu_;
  std::uint32_t reader_;
  IpcEventHandle shown_;
  CudaEvent health_;  // never recorded: it says what has failed on the GPU
};

// By any thread.
class SharedEventPool {
 public:
  // Throws Error device or environment where processes cannot share it.
  std::unique_ptr<DeviceEvent> make(int device);
  std::unique_ptr<DeviceEvent> open(int device, const IpcEventHandle& theirs);
  // A device was reset, and GPUs do not know the pages any more.
  void forget();

 private:
  // Says where another process finds an event; lies in IpcEventHandle's bytes.
  struct EventFlagAddress {
    std::array<char, 56> ticket;  // of the page; zeros behind it
    std::uint32_t line;
  };

  std::mutex mutex_;
  std::shared_ptr<const EventFlagPage> own_;
  std::size_t next_line_ = 0;
  std::vector<std::shared_ptr<const EventFlagPage>> forgotten_;  // GPUs that were not reset know them still
  std::uint64_t made_ = 0;
  std::map<std::string, std::shared_ptr<const EventFlagPage>> theirs_;  // by ticket
  std::map<std::pair<std::string, std::uint32_t>, std::uint32_t>
      readers_;  // of a line: which of its words is this process's
};

}  // namespace lockstep::gpu
