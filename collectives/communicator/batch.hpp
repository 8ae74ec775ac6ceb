// SPDX-License-Identifier: Apache-2.0
// Declares Batch, which reduces or broadcasts many tensors of different types as one operation. It packs tensors of one
// type and operation into one message, so a hundred small tensors cost as much as a large one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"

namespace lockstep {

namespace gpu {
class StreamMark;
}  // namespace gpu

// Collects tensors and starts them together. All ranks add the same tensors, with equal counts and types, in the same
// order; a difference is LOCKSTEP-E016. The caller owns the tensors' memory, which must stay while the batch is used.
class Batch {
 public:
  // Makes an empty batch on a communicator, which must outlive it.
  explicit Batch(Communicator& communicator);
  // Orders the calls in a GPU's stream. All ranks of the communicator do so, each with a stream of its own GPU.
  explicit Batch(const StreamCollectives& on);
  // Makes a batch for the same tensors as an earlier one. They have moved to other memory, perhaps on this rank alone.
  // It takes over the earlier decision whether GPUs do the work, so ranks need not vote again.
  Batch(Communicator& communicator, Batch&& earlier);
  Batch(const Batch& other);
  Batch& operator=(const Batch& other);
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  ~Batch();

  // Adds a tensor, which the result replaces. Returns the batch, so that calls can be chained. Nothing starts yet.
  template <class R, class Op>
  Batch& all_reduce(R&& data, Op op, Origin origin = Origin::here()) {
    return add(detail::requests::reduce_in_place(Collective::all_reduce, data, op, 0, origin));
  }
  // Adds a tensor that receives the root's data.
  template <class R>
  Batch& broadcast(R&& data, int root, Origin origin = Origin::here()) {
    return add(detail::requests::broadcast(data, root, rank_, origin));
  }
  // Starts all tensors at once; all ranks start the same batch. After its request has ended, the batch may be started
  // again on the same memory, with the same plans. In a stream, the request need not have ended.
  Request start(Origin origin = Origin::here());
  // Starts tensors on GPUs after these marks are reached. Meanwhile, later work in the marks' streams goes on, and the
  // default stream is not waited for. If NCCL does not do the work, the host waits for the marks.
  Request start_behind(const std::vector<std::shared_ptr<gpu::StreamMark>>& marks, Origin origin = Origin::here());
  // Runs all tensors to their end. In a stream, if GPUs need no host, it returns when all calls are queued.
  void run(Origin origin = Origin::here());

 private:
  Batch& add(const detail::CallRequest& request);
  // Plans the calls if none are planned yet, and again if ranks must compare another subject than before. In strict
  // mode they compare places in the program as well.
  void pack_for(const Origin& origin);
  void pack(const Origin& origin);
  void pack_alike(std::size_t first, const Origin& origin);
  // Returns one call for all of `members`, on packed memory if they need it.
  static detail::BoundCall packed(detail::CommunicatorCore& core, detail::CallRequest whole,
                                  std::span<const detail::CallRequest> members);

  std::shared_ptr<detail::CommunicatorCore> core_;
  int rank_;
  std::optional<gpu::Stream> stream_;
  std::vector<detail::CallRequest> requests_;
  std::vector<detail::BoundCall> calls_;    // Empty until packed.
  std::uint64_t place_ = 0;                 // Fingerprint of the program's place; 0 unless strict.
  std::uint64_t subject_ = 0;               // Hash of the subject of the planned calls.
  std::vector<detail::BoundCall> earlier_;  // Calls whose decisions pack() takes over.
};

}  // namespace lockstep
