// SPDX-License-Identifier: Apache-2.0
// Holds a communicator of ranks with one GPU each that works by NCCL. Calls run in their order, in a given stream,
// without waiting for it. Lockstep composes collectives that NCCL lacks from NCCL's messages and its own kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/gpu/user_launch.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/nccl/registered_memory.hpp"
#include "collectives/plan.hpp"

namespace lockstep::nccl {

// Describes one collective. Its buffers are in the memory of the NCCL communicator's GPU.
struct NcclCall {
  Spec spec;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;         // this member's factor, for premul_sum
  gpu::UserLaunch own = {};  // launches the user's own reduction
  // True if NcclCommunicator::places_of() of this call, and of those begun with it, is equal on all members.
  bool is_same_memory = false;
};

// True if an NCCL communicator of this size can do the call. All members get the same answer.
bool can_do(const Spec& spec, int members);

// Return the bytes that one member sends to or receives from another in a pure exchange, as this member sees it. NCCL
// hangs if the two see different counts, so members compare them first.
std::size_t bytes_to(const Spec& spec, int me, int to);
std::size_t bytes_from(const Spec& spec, int me, int from);

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
  // Registers memory that NcclInterface::allocate() gave, and takes ownership of it. All members call it together, each
  // with as many bytes. The result is dropped by its last owner, and freed after all members have dropped theirs.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes, RegistrationMode how,
                                 const WaitFunction& wait_function);
  // Returns the numbers of registered memory that this member has dropped.
  std::vector<std::uint64_t> dropped() const { return registered_->dropped(); }
  // Removes registrations that all members have dropped, and frees the memory. All members call it together, with the
  // same numbers.
  void forget(std::span<const std::uint64_t> numbers, const WaitFunction& wait_function) {
    forget(numbers, true, wait_function);
  }
  // Returns a hash of the places in registered memory that the calls use. Members with equal hashes use the same parts.
  std::uint64_t places_of(std::span<const NcclCall> steps) const;
  // Ends the communicator in order; all members do so together.
  void end(const WaitFunction& wait_function);
  // True if GPU work is under way.
  bool is_working() const;

 private:
  // Describes a composed reduction: member i combines the parts that all members have of block i.
  struct ReductionBlocks {
    std::size_t offset(int block) const;
    std::size_t count(int block) const { return offset(block + 1) - offset(block); }
    const NcclCall* step;
    // Holds the elements per block in all_reduce and reduce; the last blocks may be shorter. 0: the call's
    // specification cuts the blocks.
    std::size_t each;
  };

  // Names one part to combine, and the memory that its intermediate result may overwrite.
  struct CombinePart {
    const std::byte* at;
    std::byte* room;
  };

  // Says how many bytes of a call's data go through other memory while NCCL works on it.
  struct BounceBytes {
    std::size_t input = 0;
    std::size_t output = 0;
  };

  // Waits until NCCL is idle.
  void settle(const WaitFunction& wait_function);
  void forget(std::span<const std::uint64_t> numbers, bool frees, const WaitFunction& wait_function);
  // Returns the bytes that must go through other memory. leave_by() copies or scales the input there, and come_back()
  // copies the output back.
  BounceBytes detour_of(const NcclCall& step) const;
  std::byte* leave_by(const BounceBytes& detour, const NcclCall& given, NcclCall& changed, std::byte* at);
  void come_back(const NcclCall& given, const NcclCall& changed);
  // Runs `f` between the start and the end of a group, and waits until NCCL is idle.
  template <class F>
  void group(const F& f, const WaitFunction& wait_function);
  [[noreturn]] static void refuse_captured(const Spec& spec);
  void run(std::span<const NcclCall> steps, std::byte* scratch, const WaitFunction& wait_function);
  void keep_end_of(gpu::Stream stream) noexcept;
  void begin_step(const NcclCall& step, std::byte* scratch);
  void reduce(const NcclCall& step);
  void move(const NcclCall& step);
  void exchange(const NcclCall& step, std::byte* scratch);
  void exchange_parts(const ReductionBlocks& blocks, std::byte* scratch);
  void combine_parts(const ReductionBlocks& blocks, std::byte* scratch);
  void scale(const NcclCall& step, std::byte* to);
  void combine_before(const NcclCall& step, std::byte* scratch);
  void combine_by_own(const NcclCall& step, std::span<const CombinePart> parts, std::size_t count, std::byte* result);
  void hand_out(const ReductionBlocks& blocks, std::byte* scratch);
  void send(const std::byte* from, std::size_t bytes, int to);
  void receive(std::byte* to, std::size_t bytes, int from);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  std::byte* scratch_of(std::size_t bytes);
  ReductionBlocks blocks_of(const NcclCall& step) const;
  std::size_t scratch_bytes(const NcclCall& step) const;
  std::size_t slot_bytes(const ReductionBlocks& blocks) const;
  // Returns the place of this member's block of the result while it is handed out.
  std::byte* result_of(const ReductionBlocks& blocks, std::byte* scratch) const;

  NcclInterface& library_;
  int size_;
  int rank_;
  int device_;
  NcclComm* member_;
  gpu::Stream stream_ = nullptr;
  // Orders operations: all of them use the scratch memory, so each waits for the one before, even in another stream.
  gpu::Stream now_ = nullptr;
  std::shared_ptr<gpu::StreamMark> last_;
  // Keeps outgrown scratch memory, because freeing it would wait for the whole GPU. The last one is in use.
  std::vector<std::shared_ptr<std::byte>> scratches_;
  std::size_t scratch_size_ = 0;
  std::shared_ptr<RegisteredMemory> registered_;
  bool has_ended_ = false;
};

}  // namespace lockstep::nccl
