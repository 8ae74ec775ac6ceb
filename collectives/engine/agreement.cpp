// SPDX-License-Identifier: Apache-2.0
// Computes the ranks that compare calls with each other, at distances of powers of two.
#include "collectives/engine/agreement.hpp"

#include <bit>

namespace lockstep {

Agreement::Agreement(int rank, int size) : rank_(rank), size_(size) {
  for (int distance = 1; distance < size; distance *= 2) targets_.push_back((rank + distance) % size);
}

bool Agreement::first_use(std::uint64_t kind) {
  if (kinds_.contains(kind)) return false;
  if (kinds_.size() >= kinds_kept) {
    kinds_.clear();
    ++times_forgotten_;
  }
  kinds_.insert(kind);
  return true;
}

std::uint32_t Agreement::bit_of(int peer) const {
  const auto distance = static_cast<std::uint32_t>(wrap(static_cast<long long>(rank_) - peer, size_));
  const bool is_power = (distance & (distance - 1)) == 0;
  return is_power ? std::uint32_t{1} << static_cast<unsigned>(std::countr_zero(distance)) & all_source_bits() : 0;
}

std::vector<int> Agreement::sources_of(std::uint32_t bits) const {
  std::vector<int> all;
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    if ((bits >> k & 1U) != 0) all.push_back(wrap(static_cast<long long>(rank_) - (1LL << k), size_));
  }
  return all;
}

std::vector<int> Agreement::targets_of(std::uint32_t bits) const {
  std::vector<int> all;
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    if ((bits >> k & 1U) != 0) all.push_back(targets_[k]);
  }
  return all;
}

std::vector<std::pair<int, CallDescription>> Agreement::take_kept(std::uint64_t number) {
  std::vector<std::pair<int, CallDescription>> taken;
  std::erase_if(early_, [&](auto& kept) {
    if (kept.second.number != number) return false;
    taken.push_back(std::move(kept));
    return true;
  });
  return taken;
}

}  // namespace lockstep
