// SPDX-License-Identifier: Apache-2.0
// Writes and reads the notes on other members by positioned reads and writes, so that unused notes take no memory.
#include "collectives/engine/status_members.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "collectives/engine/timeline.hpp"
#include "topology/base/text.hpp"

namespace lockstep::status {
namespace {

// Returns the position of a rank's entry in the notes. For rank `size` this is where the hosts' names begin.
constexpr std::size_t entry_begin(int rank) {
  return sizeof(MembersHeader) + static_cast<std::size_t>(rank) * sizeof(MemberEntry);
}

// Returns false if a write up to that position would exceed RLIMIT_FSIZE, which would end the process.
bool may_write_to(std::size_t end) {
  rlimit longest{};
  return ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur >= end;
}

// Returns the notes in bytes: the header, the entries, and each host's name once.
Bytes bytes_of(const Members& members, int size) {
  std::map<std::string_view, std::uint32_t> hosts;
  std::vector<std::string_view> names;
  std::vector<MemberEntry> entries(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    const MemberPlace place = members.place_of(rank);
    const auto [found, is_new] = hosts.emplace(place.host, static_cast<std::uint32_t>(names.size()));
    if (is_new) names.push_back(place.host);
    entries[static_cast<std::size_t>(rank)].process = place.process;
    entries[static_cast<std::size_t>(rank)].host = found->second;
  }
  Bytes bytes(entry_begin(size) + names.size() * host_bytes);
  const MembersHeader header{static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(names.size())};
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, entries.data(), entries.size() * sizeof(MemberEntry));
  for (std::size_t i = 0; i < names.size(); ++i)
    std::memcpy(bytes.data() + entry_begin(size) + i * host_bytes, names[i].data(),
                std::min(names[i].size(), host_bytes - 1));
  return bytes;
}

// Returns the milliseconds since that time, or `never` for an absent or future time.
std::int64_t ms_since(std::int64_t then_ns, std::int64_t now_ns) {
  constexpr std::int64_t ms_ns = 1'000'000;
  return then_ns > 0 && then_ns <= now_ns ? (now_ns - then_ns) / ms_ns : MemberSnapshot::never;
}

}  // namespace

bool write_at(int file, std::size_t begin, std::span<const std::byte> bytes) noexcept {
  return may_write_to(begin + bytes.size()) &&
         ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(begin)) == static_cast<ssize_t>(bytes.size());
}

std::size_t members_bytes(int members, std::size_t hosts) {
  if (members < 0 || hosts > static_cast<std::size_t>(members) || entry_begin(members) > members_span) return 0;
  return std::min(members_span, entry_begin(members) + hosts * host_bytes);
}

MemberNotes::MemberNotes(const CommunicatorStatus* status, const Members& members, int size) noexcept {
  const auto number = number_of(status);
  const int file = file_of_this_process();
  if (!number || file < 0) return;
  const std::size_t begin = members_begin(*number);
  if (members.place_of(0).process == 0 || entry_begin(size) > members_span) return;
  try {
    const Bytes bytes = bytes_of(members, size);
    if (bytes.size() <= members_span && write_at(file, begin, bytes)) begin_ = begin;
  } catch (const std::bad_alloc&) {  // without memory for the notes, `lockstep stat` says less
  }
}

void MemberNotes::clear() noexcept {
  const std::size_t begin = std::exchange(begin_, 0);
  const int file = begin == 0 ? -1 : file_of_this_process();
  if (file < 0) return;
  ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
              static_cast<off_t>(members_span));
}

template <class Change>
void MemberNotes::change(int rank, const Change& change) const noexcept {
  const int file = begin_ == 0 ? -1 : file_of_this_process();
  if (file < 0) return;
  const std::size_t begin = begin_ + entry_begin(rank);
  MemberEntry entry{};
  if (::pread(file, &entry, sizeof entry, static_cast<off_t>(begin)) != sizeof entry) return;
  change(entry);
  static_cast<void>(write_at(file, begin, std::as_bytes(std::span(&entry, 1))));
}

void MemberNotes::asked(int rank) const noexcept {
  change(rank, [](MemberEntry& entry) {
    if (entry.asked_ns <= entry.heard_ns) entry.asked_ns = timeline::now_ns();
  });
}

void MemberNotes::heard(int rank) const noexcept {
  change(rank, [](MemberEntry& entry) {
    if (entry.state > MemberResponse::heard) return;  // heard_ns is the time of its answer
    entry.heard_ns = timeline::now_ns();
    entry.state = MemberResponse::heard;
  });
}

void MemberNotes::answered(int rank, std::uint64_t finished, std::uint64_t in_flight) const noexcept {
  change(rank, [&](MemberEntry& entry) {
    entry.state = MemberResponse::answered;
    entry.heard_ns = timeline::now_ns();
    entry.finished = finished;
    entry.in_flight = in_flight;
  });
}

void MemberNotes::left(int rank, std::uint64_t last_started) const noexcept {
  change(rank, [&](MemberEntry& entry) {
    entry.state = MemberResponse::left;
    entry.heard_ns = timeline::now_ns();
    entry.finished = last_started;
    entry.in_flight = 0;
  });
}

std::string_view to_string(MemberResponse state) {
  constexpr std::array<std::string_view, 4> names = {"silent", "heard", "answered", "left"};
  return names.at(static_cast<std::size_t>(state));
}

std::vector<MemberSnapshot> read_members(std::span<const std::byte> bytes, int size, std::int64_t now_ns) {
  MembersHeader header{};
  if (bytes.size() < sizeof header || size < 1) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto members = static_cast<std::size_t>(size);
  if (header.members != members || header.hosts == 0 || header.hosts > members || members > members_span) return {};
  if (bytes.size() < entry_begin(size) + header.hosts * host_bytes) return {};
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < header.hosts; ++i) {
    std::array<char, host_bytes> name{};
    std::memcpy(name.data(), bytes.data() + entry_begin(size) + i * host_bytes, host_bytes);
    hosts.push_back(printable(std::string_view(name.data(), ::strnlen(name.data(), host_bytes)), host_bytes));
  }
  std::vector<MemberSnapshot> all;
  for (int rank = 0; rank < size; ++rank) {
    MemberEntry entry{};
    std::memcpy(&entry, bytes.data() + entry_begin(rank), sizeof entry);
    if (entry.host >= hosts.size() || entry.process < 0 || entry.state > MemberResponse::left) return {};
    const bool is_asked = entry.asked_ns > entry.heard_ns;
    all.push_back({.rank = rank,
                   .host = hosts[entry.host],
                   .process = entry.process,
                   .state = entry.state,
                   .finished = entry.finished,
                   .in_flight = entry.in_flight,
                   .unanswered_ms = is_asked ? ms_since(entry.asked_ns, now_ns) : MemberSnapshot::never,
                   .heard_ms = ms_since(entry.heard_ns, now_ns)});
  }
  return all;
}

}  // namespace lockstep::status
