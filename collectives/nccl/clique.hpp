// SPDX-License-Identifier: Apache-2.0
// The members of a communicator with a GPU each, and what they do by NCCL: in the order of their calls, in the stream
// that is named, without waiting for it. What NCCL lacks is composed of its messages and our own kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/gpu/own_launch.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/nccl/registered.hpp"
#include "collectives/plan.hpp"

namespace lockstep::nccl {

// One collective, of buffers that are in the memory of the clique's GPU.
struct Step {
  Spec spec;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double factor = 1;        // of premul_sum, this member's own
  gpu::OwnLaunch own = {};  // of the user's own function
  // Clique::places_of() it, and of what was asked for together with it, is equal on all members.
  bool is_same_memory = false;
};

// Whether a clique of so many can; the same on all members.
bool can_do(const Spec& spec, int members);

// What goes from one member to another where they only send to each other, as far as this member knows. NCCL hangs
// where the two have different counts in mind.
std::size_t bytes_to(const Spec& spec, int me, int to);
std::size_t bytes_from(const Spec& spec, int me, int from);

class Clique {
 public:
  // Called while there is nothing to do but to wait; throws when there is no use in it.
  using Pause = std::function<void()>;

  // All members make it together.
  Clique(Library& library, const Id& id, int size, int rank, int device, const Pause& pause);
  // Breaks off what is under way, unless it was ended before.
  ~Clique();
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;

  int device() const { return device_; }
  // Of its own, beside all that the program puts into streams later: after these marks, or, where there are none, after
  // what was begun before in the GPU's default stream.
  gpu::Stream stream_after(std::span<const std::shared_ptr<gpu::Mark>> marks);

  // The steps as one operation. What is returned is reached when it is done; nothing, where the stream is captured.
  std::shared_ptr<gpu::Mark> begin(std::span<const Step> given, gpu::Stream stream, const Pause& pause);
  // Throws what went wrong since, also on other members.
  void check();
  // NCCL knows what the library's allocate() gave from now on; it is freed here. All members together, each as much;
  // so, too, they forget what all of them have dropped.
  std::shared_ptr<std::byte> add(std::byte* memory, std::size_t bytes, Registering how, const Pause& pause);
  std::vector<std::uint64_t> dropped() const { return registered_->dropped(); }
  void forget(std::span<const std::uint64_t> numbers, const Pause& pause) { forget(numbers, true, pause); }
  // 64 bits that say which parts of memory that NCCL knows the steps have.
  std::uint64_t places_of(std::span<const Step> steps) const;
  // All members end it together.
  void end(const Pause& pause);
  // Whether something is under way.
  bool is_working() const;

 private:
  // Of a reduction that is composed: block i is for member i, who combines what all have of it.
  struct Blocks {
    std::size_t offset(int block) const;
    std::size_t count(int block) const { return offset(block + 1) - offset(block); }
    const Step* step;
    std::size_t each;  // of all_reduce and reduce, whose last blocks may be shorter; 0: as the specification cuts
  };

  // What is to be combined: where it lies, and where that which becomes of it may.
  struct Part {
    const std::byte* at;
    std::byte* room;
  };

  // How much of a step's data is elsewhere while NCCL works on it.
  struct Detour {
    std::size_t input = 0;
    std::size_t output = 0;
  };

  void settle(const Pause& pause);
  void forget(std::span<const std::uint64_t> numbers, bool frees, const Pause& pause);
  Detour detour_of(const Step& step) const;
  std::byte* leave_by(const Detour& detour, const Step& given, Step& changed, std::byte* at);
  void come_back(const Step& given, const Step& changed);
  // Everything between the beginning of a group and its end.
  template <class F>
  void group(const F& f, const Pause& pause);
  [[noreturn]] static void refuse_captured(const Spec& spec);
  void run(std::span<const Step> steps, std::byte* scratch, const Pause& pause);
  void keep_end_of(gpu::Stream stream) noexcept;
  void begin_step(const Step& step, std::byte* scratch);
  void reduce(const Step& step);
  void move(const Step& step);
  void exchange(const Step& step, std::byte* scratch);
  void exchange_parts(const Blocks& blocks, std::byte* scratch);
  void combine_parts(const Blocks& blocks, std::byte* scratch);
  void scale(const Step& step, std::byte* to);
  void combine_before(const Step& step, std::byte* scratch);
  void combine_by_own(const Step& step, std::span<const Part> parts, std::size_t count, std::byte* result);
  void hand_out(const Blocks& blocks, std::byte* scratch);
  void send(const std::byte* from, std::size_t bytes, int to);
  void receive(std::byte* to, std::size_t bytes, int from);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  std::byte* scratch_of(std::size_t bytes);
  Blocks blocks_of(const Step& step) const;
  std::size_t scratch_bytes(const Step& step) const;
  std::size_t slot_bytes(const Blocks& blocks) const;
  // Where the result of a block is while it is handed out.
  std::byte* result_of(const Blocks& blocks, std::byte* scratch) const;

  Library& library_;
  int size_;
  int rank_;
  int device_;
  Member* member_;
  gpu::Stream stream_ = nullptr;
  // What is under way uses the scratch; the next operation comes after it, whatever their streams.
  gpu::Stream now_ = nullptr;
  std::shared_ptr<gpu::Mark> last_;
  std::vector<std::shared_ptr<std::byte>> scratches_;  // the last one is used; freeing waits for the whole GPU
  std::size_t scratch_size_ = 0;
  std::shared_ptr<Registered> registered_;
  bool has_ended_ = false;
};

}  // namespace lockstep::nccl
