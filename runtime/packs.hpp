// SPDX-License-Identifier: Apache-2.0
// Passes memory to the calls of a communicator if its type is known only at run time.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/call_subject.hpp"
#include "runtime/communication.hpp"
#include "runtime/named_op.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep::detail {

// Adds a value to a batch. Throws Error usage for a type that has no addition.
void add_view(Batch& batch, const TensorView& view, NamedOp op, Origin origin);

// Copies the memory of member `from` to all.
void broadcast_view(Communicator& member, const TensorView& view, int from, Origin origin);

// Combines the values of one replica, each in place: the last ones first, in packs of `bytes_per_pack` bytes.
void all_reduce_packs(Communicator& member, const TensorViews& values, NamedOp op, std::int64_t bytes_per_pack,
                      Origin origin);

// Computes to = to op from; avg adds. Each of the two may lie in host or GPU memory. Throws Error usage for a type
// without that operation.
void reduce_into(ReduceOp op, const TensorView& to, const TensorView& from);
// Copies `from` to `to`, between host and GPU memory as well.
void copy(const TensorView& to, const TensorView& from);
// Divides a sum of `of` values by their number, in place.
void average(const TensorView& view, int of);

// Sets the timeout of a member's calls while it lives. Zero changes nothing.
class ScopedTimeout {
 public:
  ScopedTimeout(Communicator& member, TimeSpan timeout) : member_(timeout == TimeSpan{} ? nullptr : &member) {
    if (member_ == nullptr) return;
    before_ = member.options().timeout;
    member.set_timeout(timeout);
  }
  ~ScopedTimeout() {
    if (member_ != nullptr) member_->set_timeout(before_);
  }
  ScopedTimeout(const ScopedTimeout&) = delete;
  ScopedTimeout& operator=(const ScopedTimeout&) = delete;

 private:
  Communicator* member_;
  TimeSpan before_ = {};
};

// Adds a subject by which members compare their calls, while it lives. A field of value 0 leaves the current one.
class ScopedCallSubject {
 public:
  ScopedCallSubject(Communicator& member, const CallSubject& subject);
  ~ScopedCallSubject();
  ScopedCallSubject(const ScopedCallSubject&) = delete;
  ScopedCallSubject& operator=(const ScopedCallSubject&) = delete;

 private:
  CommunicatorCore& core_;
  CallSubject before_;
};

// Is one collective of a replica: its communicator, and the subject by which members compare it while this lives.
class CountedCall {
 public:
  CountedCall(Communicator& member, const CallSubject& subject) : member_(member), subject_(member, subject) {}
  Communicator& operator*() const { return member_; }
  Communicator* operator->() const { return &member_; }

 private:
  Communicator& member_;
  ScopedCallSubject subject_;
};

}  // namespace lockstep::detail
