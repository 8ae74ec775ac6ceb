// SPDX-License-Identifier: Apache-2.0
// The members of a communicator with a GPU each, and what they do by NCCL: in the order of their calls, in the stream
// that is named, without waiting for it. What NCCL lacks is composed of its messages and our own kernels.
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
  double factor = 1;         // of premul_sum, this member's own
  gpu::UserLaunch own = {};  // of the user's own function
  // True if NcclCommunicator::places_of() of this call, and of those begun with it, is equal on all members.
  bool is_same_memory = false;
};

// Whether an NCCL communicator of so many can; the same on all members.
bool can_do(const Spec& spec, int members);

// What goes from one member to another where they only send to each other, as far as this member knows. NCCL hangs
// where the two have different counts in mind.
std::size_t bytes_to(const Spec& spec, int me, int to);
std::size_t bytes_from(const Spec& spec, int me, int from);

class NcclCommunicator {
 public:
  // Called while there is nothing to do but to wait; throws when there is no use in it.
  using WaitFunction = std::function<void()>;

  // All members make it together.
  NcclCommunicator(NcclInterface& library, const NcclId& id, int size, int rank, int device,
                   const WaitFunction& wait_function);
  // Breaks off what is under way, unless it was ended before.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int device() const { return device_; }
  // Of its own, beside all that the program puts into streams later: after these marks, or, where there are none, after
  // what was begun before in the GPU's default stream.
  gpu::Stream stream_after(std::span<const std::shared_ptr<gpu::StreamMark>> marks);

  // The steps as one operation. What is returned is reached when it is done; nothing, where the stream is captured.
  std::shared_ptr<gpu::StreamMark> begin(std::span<const NcclCall> given, gpu::Stream stream,
                                         const WaitFunction& wait_function);
  // Throws what went wrong since, also on other members.
  void check();
  // NCCL knows what the library's allocate() gave from now on; it is freed here. All members together, each as much;
  // so, too, they forget what all of them have dropped.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes, RegistrationMode how,
                                 const WaitFunction& wait_function);
  std::vector<std::uint64_t> dropped() const { return registered_->dropped(); }
  void forget(std::span<const std::uint64_t> numbers, const WaitFunction& wait_function) {
    forget(numbers, true, wait_function);
  }
  // 64 bits that say which parts of memory that NCCL knows the steps have.
  std::uint64_t places_of(std::span<const NcclCall> steps) const;
  // All members end it together.
  void end(const WaitFunction& wait_function);
  // Whether something is under way.
  bool is_working() const;

 private:
  // Of a reduction that is composed: block i is for member i, who combines what all have of it.
  struct ReductionBlocks {
    std::size_t offset(int block) const;
    std::size_t count(int block) const { return offset(block + 1) - offset(block); }
    const NcclCall* step;
    std::size_t each;  // of all_reduce and reduce, whose last blocks may be shorter; 0: as the specification cuts
  };

  // What is to be combined: where it lies, and where that which becomes of it may.
  struct CombinePart {
    const std::byte* at;
    std::byte* room;
  };

  // How much of a step's data is elsewhere while NCCL works on it.
  struct BounceBytes {
    std::size_t input = 0;
    std::size_t output = 0;
  };

  void settle(const WaitFunction& wait_function);
  void forget(std::span<const std::uint64_t> numbers, bool frees, const WaitFunction& wait_function);
  BounceBytes detour_of(const NcclCall& step) const;
  std::byte* leave_by(const BounceBytes& detour, const NcclCall& given, NcclCall& changed, std::byte* at);
  void come_back(const NcclCall& given, const NcclCall& changed);
  // Everything between the beginning of a group and its end.
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
  // Where the result of a block is while it is handed out.
  std::byte* result_of(const ReductionBlocks& blocks, std::byte* scratch) const;

  NcclInterface& library_;
  int size_;
  int rank_;
  int device_;
  NcclComm* member_;
  gpu::Stream stream_ = nullptr;
  // What is under way uses the scratch; the next operation comes after it, whatever their streams.
  gpu::Stream now_ = nullptr;
  std::shared_ptr<gpu::StreamMark> last_;
  std::vector<std::shared_ptr<std::byte>> scratches_;  // the last one is used; freeing waits for the whole GPU
  std::size_t scratch_size_ = 0;
  std::shared_ptr<RegisteredMemory> registered_;
  bool has_ended_ = false;
};

}  // namespace lockstep::nccl
