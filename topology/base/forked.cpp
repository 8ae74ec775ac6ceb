// SPDX-License-Identifier: Apache-2.0
// Gives up descriptors in a forked child. Code in the child takes no lock and no memory, since other threads of the
// parent may have held both, and are not here to release them.
#include "topology/base/forked.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

namespace lockstep {
namespace {

// Equals the kernel's default for the highest limit of a process (fs.nr_open).
constexpr std::size_t most_descriptors = 1U << 20U;
constexpr std::size_t word_bits = 64;
std::array<std::atomic<std::uint64_t>, most_descriptors / word_bits> descriptors_kept{};

constexpr std::size_t most_ports = 64;  // a guess
std::array<std::atomic<std::uint16_t>, most_ports> ports_kept{};
std::atomic<std::size_t> port_count = 0;

// Puts /dev/null in the place of the descriptor. Its number stays taken; otherwise the child's next open() would get
// it.
void replace_by_null(int descriptor) {
  static const char* const nothing = "/dev/null";
  const int instead = ::open(nothing, O_RDWR | O_CLOEXEC);
  if (instead < 0 || instead == descriptor || ::dup3(instead, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
  if (instead >= 0 && instead != descriptor) ::close(instead);
}

std::uint16_t port_of(int (*name)(int, sockaddr*, socklen_t*), int descriptor) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (name(descriptor, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  return storage.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port) : 0;
}

// True if a kept port is on either side of this socket. Sockets of the program itself, which block or delay or stay
// open across exec, do not count.
bool is_of_a_port(int descriptor) {
  const std::uint16_t here = port_of(::getsockname, descriptor);
  if (here == 0) return false;
  const std::uint16_t there = port_of(::getpeername, descriptor);
  int delays = 0;
  socklen_t size = sizeof delays;
  ::getsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &delays, &size);
  const bool listens = there == 0;
  const bool never_blocks = (::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0;
  if (!never_blocks || (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) == 0 || (delays == 0 && !listens)) return false;
  for (std::size_t i = 0; i < std::min(most_ports, port_count.load()); ++i) {
    if (const std::uint16_t port = ports_kept[i].load(); port != 0 && (port == here || port == there)) return true;
  }
  return false;
}

// Describes an entry of a folder as the system call returns it.
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t bytes;
  std::uint8_t kind;
  char name[1];
};

int number_in(const char* digits) {
  int number = 0;
  for (; *digits >= '0' && *digits <= '9'; ++digits) number = 10 * number + (*digits - '0');
  return *digits == '\0' ? number : -1;
}

void close_port_sockets() {
  if (port_count.load() == 0) return;
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(DirectoryEntry) std::array<char, 4096> listed;
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, folder, listed.data(), listed.size());
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* const one = reinterpret_cast<const DirectoryEntry*>(listed.data() + at);
      const int number = number_in(one->name);
      if (number >= 0 && number != folder && is_of_a_port(number)) replace_by_null(number);
      at += one->bytes;
    }
  }
  ::close(folder);
}

void begin_as_child() {
  for (std::size_t at = 0; at < descriptors_kept.size(); ++at) {
    for (std::uint64_t left = descriptors_kept[at].exchange(0); left != 0; left &= left - 1)
      replace_by_null(static_cast<int>(at * word_bits) + std::countr_zero(left));
  }
  close_port_sockets();
}

void look_for_children() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &begin_as_child);
  static_cast<void>(registered);
}

}  // namespace

void keep_from_children(int descriptor) {
  const auto number = static_cast<std::size_t>(descriptor);
  if (descriptor < 0 || number >= most_descriptors) return;
  look_for_children();
  descriptors_kept[number / word_bits].fetch_or(std::uint64_t{1} << number % word_bits);
}

void return_to_children(int descriptor) noexcept {
  const auto number = static_cast<std::size_t>(descriptor);
  if (descriptor < 0 || number >= most_descriptors) return;
  descriptors_kept[number / word_bits].fetch_and(~(std::uint64_t{1} << number % word_bits));
}

void keep_port_from_children(std::uint16_t port) {
  look_for_children();
  for (std::size_t i = 0; i < std::min(most_ports, port_count.load()); ++i) {
    if (ports_kept[i].load() == port) return;
  }
  const std::size_t place = port_count.fetch_add(1) % most_ports;  // the oldest makes room
  ports_kept[place].store(port);
}

}  // namespace lockstep
