// SPDX-License-Identifier: Apache-2.0
// Compares the numbers of collectives of a process's replicas.
#include "runtime/replica_progress.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

ReplicaProgress::ReplicaProgress(int replicas, int first)
    : replicas_(replicas), first_(first), counts_(std::make_unique<Count[]>(static_cast<std::size_t>(replicas))) {}

void ReplicaProgress::begin() {
  for (int i = 0; i < replicas_; ++i) {
    counts_[static_cast<std::size_t>(i)].begun.store(0, std::memory_order_relaxed);
    counts_[static_cast<std::size_t>(i)].left.store(false, std::memory_order_relaxed);
  }
}

// Is sequentially consistent on both sides: if one replica begins a collective while another leaves, one of them sees
// the other.
void ReplicaProgress::count(int local, Origin origin) {
  if (replicas_ < 2) return;
  Count& mine = counts_[static_cast<std::size_t>(local)];
  mine.file.store(origin.file, std::memory_order_relaxed);
  mine.line.store(origin.line, std::memory_order_relaxed);
  const std::uint64_t begun = mine.begun.fetch_add(1) + 1;
  for (int i = 0; i < replicas_; ++i) {
    const Count& other = counts_[static_cast<std::size_t>(i)];
    if (other.left.load() && other.begun.load() < begun) refuse_difference(local, i);
  }
}

void ReplicaProgress::leave(int local) {
  Count& mine = counts_[static_cast<std::size_t>(local)];
  mine.left.store(true);
  for (int i = 0; i < replicas_; ++i) {
    if (counts_[static_cast<std::size_t>(i)].begun.load() > mine.begun.load()) refuse_difference(i, local);
  }
}

// Reports that `local` has made more collectives than `other`, which has returned.
void ReplicaProgress::refuse_difference(int local, int other) const {
  const auto of = [&](int which) -> const Count& { return counts_[static_cast<std::size_t>(which)]; };
  const auto at = [&](int which) { return place({of(which).file.load(), of(which).line.load()}); };
  const std::uint64_t done = of(other).begun.load();
  throw Error(Code::mismatch,
              text("replica ", first_ + local, " is in collective ", of(local).begun.load(), " of this run, at ",
                   at(local), "; replica ", first_ + other, " has returned after ", done,
                   done == 0 ? "" : text(", the last at ", at(other))),
              "make the same calls in all replicas");
}

}  // namespace lockstep::detail
