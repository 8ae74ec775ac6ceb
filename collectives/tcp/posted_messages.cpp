// SPDX-License-Identifier: Apache-2.0
// Copies the messages of a rank to itself, and reports errors of messages.
#include "collectives/tcp/posted_messages.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/engine/memory_fault.hpp"
#include "collectives/engine/round_rules.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {

void MessageErrors::report_length(int from, std::uint64_t sent, int to, std::uint64_t wanted) {
  if (mismatch_.empty()) mismatch_ = round_rules::length_mismatch(from, sent, to, wanted);
}

void MessageErrors::report_length_to_self(int rank, std::uint64_t sent, std::uint64_t wanted) {
  mismatch_ = text("rank ", rank, " sent ", sent, " bytes to itself, where it receives ", wanted);
}

void MessageErrors::check(const PendingCounts& round) const {
  if (bad_ && bad_->left == &round) throw MemoryFault(bad_->at, bad_->bytes, bad_->access);
  if (!mismatch_.empty()) throw round_rules::mismatch(mismatch_);
}

void SelfMessages::post(const SelfMessage& half, int rank, MessageErrors& errors) {
  const bool sends = half.into == nullptr;
  const auto other = std::ranges::find_if(halves_, [&](const SelfMessage& each) {
    return each.channel == half.channel && each.call_tag == half.call_tag && (each.into == nullptr) != sends;
  });
  if (other == halves_.end()) {
    halves_.push_back(half);
    return;
  }
  const SelfMessage& from = sends ? half : *other;
  const SelfMessage& to = sends ? *other : half;
  if (from.bytes != to.bytes) return errors.report_length_to_self(rank, from.bytes, to.bytes);
  if (from.bytes > 0) std::memcpy(to.into, from.from, from.bytes);
  --from.left->sends;
  --to.left->receives;
  halves_.erase(other);
}

}  // namespace lockstep::tcp
