// SPDX-License-Identifier: Apache-2.0
// A process keeps notes on the other members of its communicators, in the same memory file, behind the StatusFile: the
// host of each, when it was asked where it stands, and what it answered. `lockstep stat` reads them for members on
// other hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_reader.hpp"
#include "topology/members.hpp"

namespace lockstep::status {

// The file has a span of its own for each entry. It is sparse: only written bytes take memory.
inline constexpr std::size_t members_span = std::size_t{1} << 20U;
inline constexpr std::size_t host_bytes = 64;

struct MembersHeader {
  std::uint32_t members;  // 0: nothing is known of them
  std::uint32_t hosts;
};

// Describes one member. These lie by rank behind the header, and the hosts' names behind all of them.
struct MemberEntry {
  std::int32_t process;
  std::uint32_t host;
  MemberResponse state;
  std::uint32_t unused;
  std::int64_t asked_ns;  // by the monotonic clock: the first question since its last control message; 0: none
  std::int64_t heard_ns;  // its last answer, or its last control message if it never answered; 0: none
  std::uint64_t finished;
  std::uint64_t in_flight;
};

constexpr std::size_t members_begin(std::size_t status) {
  constexpr std::size_t block = 4096;
  return (sizeof(StatusFile) + block - 1) / block * block + status * members_span;
}

// Returns the length of the bytes of so many members, at most a span.
std::size_t members_bytes(int members, std::size_t hosts);

// Writes at this position of a status file. Returns false if that fails or RLIMIT_FSIZE forbids it.
bool write_at(int file, std::size_t begin, std::span<const std::byte> bytes) noexcept;

// Writes the notes of one communicator's engine. Does nothing for a communicator without an entry in the file, for
// unknown members, and for more members than a span holds (about 9,000 on as many hosts).
class MemberNotes {
 public:
  MemberNotes() = default;
  MemberNotes(const CommunicatorStatus* status, const Members& members, int size) noexcept;

  // Gives the memory back, so that the next communicator with this entry finds none of it.
  void clear() noexcept;
  void asked(int rank) const noexcept;
  void heard(int rank) const noexcept;
  void answered(int rank, std::uint64_t finished, std::uint64_t in_flight) const noexcept;
  void left(int rank, std::uint64_t last_started) const noexcept;

 private:
  template <class Change>
  void change(int rank, const Change& change) const noexcept;

  std::size_t begin_ = 0;  // in the file; 0: nothing is written
};

// Checks the bytes, which may be anything. Returns no member if they are not those of `size` members.
std::vector<MemberSnapshot> read_members(std::span<const std::byte> bytes, int size, std::int64_t now_ns);

}  // namespace lockstep::status
