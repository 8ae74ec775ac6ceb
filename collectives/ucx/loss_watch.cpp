// SPDX-License-Identifier: Apache-2.0
// Chooses the moment of the report.
#include "collectives/ucx/loss_watch.hpp"

#include "topology/base/error.hpp"

namespace lockstep::ucx {
namespace {

constexpr std::chrono::milliseconds last_words_take{100};
constexpr std::chrono::milliseconds neighbours_take{200};

[[noreturn]] void raise(const LostMember& lost) {
  throw Error(Code::peer_failed, lost.words, "see that process's own error");
}

}  // namespace

void LossWatch::check() const {
  if (!lookup_) return;
  if (const auto lost = lookup_()) raise(*lost);
}

void LossWatch::look() {
  constexpr unsigned between_looks = 16;
  if (!lookup_ || lost_ || turns_++ % between_looks != 0) return;
  lost_ = lookup_();
  lost_at_ = std::chrono::steady_clock::now();
}

void LossWatch::report() {
  if (!lost_ || has_reported_) return;
  const int rank = lost_->rank;
  if (const auto end = rank < 0 || lost_->says_how ? std::nullopt : roster_.end_of(rank))
    lost_ = LostMember{rank, *end, true};
  const bool others_know = rank >= 0 && !lost_->says_how && !roster_.process_of(rank) && roster_.has_neighbour(rank);
  if (std::chrono::steady_clock::now() - lost_at_ <= (others_know ? neighbours_take : last_words_take)) return;
  has_reported_ = true;
  raise(*lost_);
}

}  // namespace lockstep::ucx
