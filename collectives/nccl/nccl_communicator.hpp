// SPDX-License-Identifier: Apache-2.0
// Holds a communicator of ranks with one GPU each that works by NCCL. Calls run in their order, in a given stream,
// without waiting for it. Lockstep composes collectives that NCCL lacks from NCCL's messages and its own kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/nccl/library.hpp"
#include "collectives/nccl/nccl_call.hpp"

namespace lockstep::nccl {

// Is this member's end of the communicator. One thread at a time may use it.
class NcclCommunicator {
 public:
  // Is called again and again while a call waits. It throws to give up the wait.
  using WaitFunction = std::function<void()>;

  // Joins the communicator; all members do so together. Throws Error device, or from `wait_function`. `library` must
  // outlive the object.
  NcclCommunicator(NcclInterface& library, const NcclId& id, int size, int rank, int device,
                   const WaitFunction& wait_function);
  // Aborts work under way unless end() is complete, and waits for that for at most a second.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int device() const { return device_; }
  // Returns the communicator's own stream. Its next work comes after these marks, or after the GPU's default stream if
  // there are none. Later work of the program runs beside it.
  gpu::Stream stream_after(std::span<const std::shared_ptr<gpu::StreamMark>> marks);

  // Starts the calls as one operation in the stream. Returns a mark that is reached when they are done, or null if the
  // stream is being captured. Throws Error usage if a captured call would need scratch memory.
  std::shared_ptr<gpu::StreamMark> begin(std::span<const NcclCall> given, gpu::Stream stream,
                                         const WaitFunction& wait_function);
  // Throws failures since the last look, also those of other members.
  void check();
  // Ends the communicator in order; all members do so together.
  void end(const WaitFunction& wait_function);
  // True if GPU work is under way.
  bool is_working() const;

 private:
  // Waits until NCCL is idle.
  void settle(const WaitFunction& wait_function);
  // Runs `f` between the start and the end of a group, and waits until NCCL is idle.
  template <class F>
  void group(const F& f, const WaitFunction& wait_function);
  [[noreturn]] static void refuse_captured(const Spec& spec);
  void run(const NcclEndpoint& endpoint, std::span<const NcclCall> steps, std::byte* scratch,
           const WaitFunction& wait_function);
  void keep_end_of(gpu::Stream stream) noexcept;
  std::byte* scratch_of(std::size_t bytes);

  NcclInterface& library_;
  int size_;
  int rank_;
  int device_;
  NcclComm* member_;
  gpu::Stream stream_ = nullptr;
  // Orders operations: all of them use the scratch memory, so each waits for the one before, even in another stream.
  std::shared_ptr<gpu::StreamMark> last_;
  // Keeps outgrown scratch memory, because freeing it would wait for the whole GPU. The last one is in use.
  std::vector<std::shared_ptr<std::byte>> scratches_;
  std::size_t scratch_size_ = 0;
  bool has_ended_ = false;
};

}  // namespace lockstep::nccl
