// SPDX-License-Identifier: Apache-2.0
// Keeps notes on the other members of this process's communicators, behind the StatusFile in the same file. The notes
// hold each member's host, when it was asked for its state, and its answer. `lockstep stat` reads them for members on
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

// Give the bytes of the file for each entry, and the bytes for a host's name. The file is sparse: only written bytes
// take memory.
inline constexpr std::size_t members_span = std::size_t{1} << 20U;
inline constexpr std::size_t host_bytes = 64;

// Begins the notes of one communicator.
struct MembersHeader {
  // Equals the communicator's size; 0 means that the members are not known.
  std::uint32_t members;
  std::uint32_t hosts;
};

// Describes one member. The entries lie by rank behind the header, and the hosts' names behind all entries.
struct MemberEntry {
  std::int32_t process;
  std::uint32_t host;
  MemberResponse state;
  std::uint32_t unused;
  // Holds the monotonic time of the first question since the member's last control message; 0 means none.
  std::int64_t asked_ns;
  // Holds the time of its last answer, or of its last control message if it never answered; 0 means none.
  std::int64_t heard_ns;
  std::uint64_t finished;
  std::uint64_t in_flight;
};

// Returns the position in the file of the notes of the communicator with this index. It begins at a page.
constexpr std::size_t members_begin(std::size_t status) {
  constexpr std::size_t block = 4096;
  return (sizeof(StatusFile) + block - 1) / block * block + status * members_span;
}

// Returns the length of the notes in bytes, at most a span. Returns 0 for impossible numbers.
std::size_t members_bytes(int members, std::size_t hosts);

// Writes at this position of a status file. Returns false if that fails, or if RLIMIT_FSIZE forbids it: such a write
// would end the process.
bool write_at(int file, std::size_t begin, std::span<const std::byte> bytes) noexcept;

// Writes the notes of one communicator's engine. Does nothing for a communicator without an entry in the file, or for
// unknown members. Also does nothing for more members than a span holds (about 9,000 on as many hosts).
class MemberNotes {
 public:
  MemberNotes() = default;
  // Writes the hosts and processes of the members. `status` may be null.
  MemberNotes(const CommunicatorStatus* status, const Members& members, int size) noexcept;

  // Frees the memory, so that the next communicator with this entry finds no old notes.
  void clear() noexcept;
  // Note an event of that rank: it was asked, a message came, it answered, or it left. The numbers are those of its
  // last finished call, of its oldest call under way (0: none), and of its last call.
  void asked(int rank) const noexcept;
  void heard(int rank) const noexcept;
  void answered(int rank, std::uint64_t finished, std::uint64_t in_flight) const noexcept;
  void left(int rank, std::uint64_t last_started) const noexcept;

 private:
  template <class Change>
  void change(int rank, const Change& change) const noexcept;

  // Gives the position of the notes in the file; 0 means that nothing is written.
  std::size_t begin_ = 0;
};

// Reads the notes of `size` members. The bytes may be anything: returns an empty vector if they are not valid notes.
std::vector<MemberSnapshot> read_members(std::span<const std::byte> bytes, int size, std::int64_t now_ns);

}  // namespace lockstep::status
