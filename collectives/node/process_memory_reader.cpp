// SPDX-License-Identifier: Apache-2.0
// Reads by process_vm_readv, and watches processes by their descriptors.
#include "collectives/node/process_memory_reader.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>

#include "topology/base/error.hpp"
#include "topology/base/shortage.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

// Returns the number of bytes that were read; less than 1: none.
ssize_t read_some(pid_t process, void* to, std::uintptr_t from, std::size_t bytes) {
  const iovec here{to, bytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
  const iovec there{reinterpret_cast<void*>(from), bytes};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0);
}

}  // namespace

ProcessIdentity process_identity() {
  static const std::uint64_t token = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32U | random();
  }();
  return {::getpid(), reinterpret_cast<std::uintptr_t>(&token), token};
}

bool is_readable(const ProcessIdentity& theirs) {
  std::uint64_t found = 0;
  return read_some(theirs.process, &found, theirs.address, sizeof found) == sizeof found && found == theirs.token;
}

bool ProcessMemoryReader::could_be_read(const void* data, std::size_t bytes) {
  const AddressRange range{reinterpret_cast<std::uintptr_t>(data), bytes};
  if (bytes == 0 || std::ranges::count(readable_, range) > 0) return true;
  std::byte one{};
  for (const std::uintptr_t end : {range.begin, range.begin + bytes - 1}) {
    if (read_some(::getpid(), &one, end, 1) != 1) return false;
  }
  readable_.at(oldest_) = range;
  oldest_ = (oldest_ + 1) % readable_.size();
  return true;
}

void ProcessMemoryReader::read(int member, std::byte* to, std::uintptr_t from, std::size_t bytes) const {
  while (bytes > 0) {
    const pid_t process = processes_[static_cast<std::size_t>(member)];
    // A member that gives up waits at most a second until no other reaches into its memory.
    constexpr std::chrono::milliseconds longest{500};
    const ssize_t came = moved_in_shortage(
        longest, [&] { return read_some(process, to, from, bytes); }, [] { return true; });
    if (came < 1) {
      const std::string why = came == 0 ? "nothing came" : std::system_category().message(errno);
      throw Error(Code::peer_failed, text("the memory of rank ", rank_of(member), " cannot be read: ", why),
                  "check that rank: it has ended, or freed its buffer while the call went on");
    }
    to += came;
    from += static_cast<std::uintptr_t>(came);
    bytes -= static_cast<std::size_t>(came);
  }
}

// The system closes a process's files before it reports the end, and the driver then ends the process's work on a GPU.
bool ProcessMemoryReader::is_gone(int member, int within_ms) const noexcept {
  if (!works()) return false;
  if (const auto& watched = watched_[static_cast<std::size_t>(member)]) return watched->has_ended(within_ms);
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, processes_[static_cast<std::size_t>(member)], 0));
  if (process < 0) return errno == ESRCH;
  pollfd ended{process, POLLIN, 0};
  const bool is_gone = ::poll(&ended, 1, within_ms) > 0;  // also if no process has asked yet how it ended
  ::close(process);
  return is_gone;
}

std::string ProcessMemoryReader::how_it_ended(int member) const {
  const auto& watched = watched_[static_cast<std::size_t>(member)];
  const auto how = watched ? watched->how() : std::nullopt;
  return how.value_or("ended");
}

}  // namespace lockstep::node
