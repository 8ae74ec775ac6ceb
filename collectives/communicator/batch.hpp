// SPDX-License-Identifier: Apache-2.0
// Many tensors of different types as one operation: those of one type and operation are packed into one message, so
// that a hundred small tensors cost what one large one costs.
#pragma once

#include "collectives/communicator/communicator.hpp"

namespace lockstep {

class Batch {
 public:
  explicit Batch(Communicator& communicator) : core_(communicator.core()), rank_(communicator.rank()) {}
  // In the order of a stream, which all members give, each one of its GPU.
  explicit Batch(const StreamCollectives& on) : core_(on.core_), rank_(on.rank()), stream_(on.stream_) {}
  // For the same tensors as an earlier one, which lie elsewhere now, perhaps on this member alone: what members have
  // found out of that one, whether GPUs do it, holds for this, and they need not ask each other again.
  Batch(Communicator& communicator, Batch&& earlier) : Batch(communicator) { earlier_ = std::move(earlier.calls_); }

  template <class R, class Op>
  Batch& all_reduce(R&& data, Op op, Origin origin = Origin::here()) {
    return add(detail::requests::reduce_in_place(Collective::all_reduce, data, op, 0, origin));
  }
  template <class R>
  Batch& broadcast(R&& data, int root, Origin origin = Origin::here()) {
    return add(detail::requests::broadcast(data, root, rank_, origin));
  }
  // All at once; all members start the same batch. It may be started again, on the same memory, after its request
  // has ended: what was planned and packed is kept. In a stream it need not have ended.
  Request start(Origin origin = Origin::here());
  // The same, of tensors on GPUs that are there when these marks are reached: what comes later in the streams of the
  // marks goes on meanwhile, and the default stream is not asked. Where GPUs do not do it by NCCL the host waits for
  // the marks.
  Request start_behind(const std::vector<std::shared_ptr<gpu::StreamMark>>& marks, Origin origin = Origin::here());
  // In a stream it returns when all is there, where GPUs do it by themselves.
  void run(Origin origin = Origin::here());

 private:
  Batch& add(const detail::CallRequest& request);
  // Plans the calls if that is still to be done. They have the place of `origin`; if members compare places, calls that
  // were planned at another one are planned anew.
  void pack_for(const Origin& origin);
  void pack(const Origin& origin);
  void pack_alike(std::size_t first, const Origin& origin);
  // As one call on memory that stands for all of theirs, where it needs any.
  static detail::BoundCall packed(detail::CommunicatorCore& core, detail::CallRequest whole,
                                  std::span<const detail::CallRequest> members);

  std::shared_ptr<detail::CommunicatorCore> core_;
  int rank_;
  std::optional<gpu::Stream> stream_;
  std::vector<detail::CallRequest> requests_;
  std::vector<detail::BoundCall> calls_;  // once packed
  std::uint64_t place_ = 0;               // where they were, as members compare it
  std::vector<detail::BoundCall> earlier_;
};

}  // namespace lockstep
