// SPDX-License-Identifier: Apache-2.0
// Memory whose type is known only when it runs, in the calls of a communicator.
#pragma once

#include "collectives/communicator/batch.hpp"
#include "runtime/communication.hpp"
#include "runtime/named_op.hpp"
#include "runtime/values/view.hpp"

namespace lockstep::detail {

// One more value of a batch; an Error usage for a type that is not added up.
void add_view(Batch& batch, const View& view, NamedOp op, Origin origin);

// The values of one replica, each in place: the last ones first, so many bytes at once.
void all_reduce_packs(Communicator& member, const Views& values, NamedOp op, std::int64_t bytes_per_pack,
                      Origin origin);

// to = to op from, wherever the two are.
void take_in(ReduceOp op, const View& to, const View& from);
void copy(const View& to, const View& from);
// A sum of so many becomes their mean.
void average(const View& view, int of);

// While it lives, calls of a member wait so long.
class Hurry {
 public:
  Hurry(Communicator& member, Duration timeout) : member_(timeout == Duration{} ? nullptr : &member) {
    if (member_ == nullptr) return;
    before_ = member.options().timeout;
    member.set_timeout(timeout);
  }
  ~Hurry() {
    if (member_ != nullptr) member_->set_timeout(before_);
  }
  Hurry(const Hurry&) = delete;
  Hurry& operator=(const Hurry&) = delete;

 private:
  Communicator* member_;
  Duration before_ = {};
};

}  // namespace lockstep::detail
