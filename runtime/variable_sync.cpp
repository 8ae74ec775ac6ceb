// SPDX-License-Identifier: Apache-2.0
// Compares the replicas' parts of a variable.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "runtime/replica_calls.hpp"
#include "runtime/variable_base.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep::detail {
namespace {

// Computes a hash of bytes, eight at a time, in four independent rows. It finds differences; it is not for security.
std::uint64_t digest(std::span<const std::byte> bytes) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ULL;
  std::uint64_t rows[4] = {1, 2, 3, 4};
  const auto mix = [&](std::size_t row, std::uint64_t word) { rows[row] = std::rotl((rows[row] ^ word) * odd, 31); };
  std::size_t at = 0;
  for (std::size_t i = 0; at + 8 <= bytes.size(); at += 8, ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    mix(i % 4, word);
  }
  std::uint64_t rest = bytes.size();
  for (; at < bytes.size(); ++at) rest = rest << 8U | std::to_integer<std::uint64_t>(bytes[at]);
  mix(0, rest);
  for (std::size_t row = 1; row < 4; ++row) mix(0, rows[row]);
  return rows[0];
}

// Returns the first replica with the most common hash.
int one_of_most(const std::vector<std::uint64_t>& digests) {
  std::map<std::uint64_t, int> number;
  for (const std::uint64_t each : digests) ++number[each];
  const auto most = std::ranges::max_element(digests, {}, [&](std::uint64_t each) { return number[each]; });
  return static_cast<int>(most - digests.begin());
}

// Holds the first element that differs, and the one behind the last.
using DifferenceRange = std::array<std::uint64_t, 2>;
DifferenceRange compare(std::span<const std::byte> mine, std::span<const std::byte> theirs, std::size_t element) {
  DifferenceRange difference = {std::numeric_limits<std::uint64_t>::max(), 0};
  for (std::size_t i = 0; i * element < mine.size(); ++i) {
    if (std::memcmp(mine.data() + i * element, theirs.data() + i * element, element) == 0) continue;
    difference[0] = std::min<std::uint64_t>(difference[0], i);
    difference[1] = i + 1;
  }
  return difference;
}

}  // namespace

void VariableBase::compare_parts(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                                 Origin origin) const {
  if (rules_.is_on_read() || home_.layout().is_shared || home_.replicas() == 1) return;
  std::vector<std::array<std::uint64_t, 1>> mine;
  mine.reserve(parts.size());
  for (const auto& part : parts) mine.push_back({digest(part)});
  const std::vector<std::uint64_t> digests = ReplicaCalls::of(home_.strategy()).values_of_all(mine, origin, subject());
  if (std::ranges::count(digests, digests.front()) == home_.replicas()) return;
  throw_difference(parts, element, digests, origin);
}

// Throws Error out_of_sync. It compares each part with that of a replica from the largest equal group.
void VariableBase::throw_difference(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                                    const std::vector<std::uint64_t>& digests, Origin origin) const {
  const int good = one_of_most(digests);
  std::vector<std::vector<std::byte>> theirs;
  theirs.reserve(parts.size());
  for (const auto& part : parts) theirs.emplace_back(part.begin(), part.end());
  run_all([&](Communicator& member,
              int local) { return member.broadcast_async(theirs[static_cast<std::size_t>(local)], good, origin); },
          origin);
  std::vector<DifferenceRange> mine;
  mine.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) mine.push_back(compare(parts[i], theirs[i], element));
  const std::vector<std::uint64_t> all = ReplicaCalls::of(home_.strategy()).values_of_all(mine, origin, subject());
  std::string words;
  IndexSet alike;
  for (std::size_t replica = 0; replica < digests.size(); ++replica) {
    const std::uint64_t begin = all[2 * replica];
    const std::uint64_t end = all[2 * replica + 1];
    if (end == 0)
      alike.insert(static_cast<int>(replica));
    else
      words +=
          text(words.empty() ? "" : "; ", "replica ", replica,
               end - begin == 1 ? text(", element ", begin) : text(", between elements ", begin, " and ", end - 1));
  }
  throw Error(
      Code::out_of_sync, text(rules_.quoted(), " differs from replicas ", alike.to_string(), ": ", words),
      "restore it from a checkpoint, or assign it for all; then find the code that writes to one replica alone");
}

}  // namespace lockstep::detail
