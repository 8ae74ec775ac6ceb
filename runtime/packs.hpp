// SPDX-License-Identifier: Apache-2.0
// Memory whose type is known only when it runs, in the calls of a communicator.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "runtime/communication.hpp"
#include "runtime/named_op.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep::detail {

// One more value of a batch; an Error usage for a type that is not added up.
void add_view(Batch& batch, const TensorView& view, NamedOp op, Origin origin);

// The values of one replica, each in place: the last ones first, so many bytes at once.
void all_reduce_packs(Communicator& member, const TensorViews& values, NamedOp op, std::int64_t bytes_per_pack,
                      Origin origin);

// to = to op from, wherever the two are.
void reduce_into(ReduceOp op, const TensorView& to, const TensorView& from);
void copy(const TensorView& to, const TensorView& from);
// A sum of so many becomes their mean.
void average(const TensorView& view, int of);

// While it lives, calls of a member wait so long.
class ScopedTimeout {
 public:
  ScopedTimeout(Communicator& member, Duration timeout) : member_(timeout == Duration{} ? nullptr : &member) {
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
  Duration before_ = {};
};

// While it lives, calls of a member are compared by this, too. What is 0 here stays as it was.
class ScopedCallSubject {
 public:
  ScopedCallSubject(Communicator& member, const CallSubject& subject)
      : core_(*member.core()), before_(core_.subject()) {
    CallSubject now = before_;
    if (subject.layout != 0) now.layout = subject.layout;
    if (subject.variable != 0) now.variable = subject.variable;
    if (now != before_) core_.set_subject(now);
  }
  ~ScopedCallSubject() {
    if (core_.subject() != before_) core_.set_subject(before_);
  }
  ScopedCallSubject(const ScopedCallSubject&) = delete;
  ScopedCallSubject& operator=(const ScopedCallSubject&) = delete;

 private:
  CommunicatorCore& core_;
  CallSubject before_;
};

}  // namespace lockstep::detail
