// SPDX-License-Identifier: Apache-2.0
// Tries to allocate, read and lock memory, and reads processor masks and the clock.
#include "tools/lockstep/doctor_probes.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace lockstep::command {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the limit at which the kernel sends a signal that ends the process. It must not be reached.
std::uint64_t file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return limit.rlim_cur;
}

int allocate(int file, std::uint64_t offset, std::uint64_t size) {
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < 10; ++tries) {
    error = ::posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(size));
  }
  return error;
}

}  // namespace

int open_unlinked(const std::string& directory) {
  std::array<std::byte, 16> number{};
  if (::getrandom(number.data(), number.size(), 0) != static_cast<ssize_t>(number.size())) return -1;
  const std::string path = text(directory, "/lockstep-doctor-", to_hexadecimal(number));
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) ::unlink(path.c_str());
  return file;
}

HeldMemory::HeldMemory(const std::string& directory, std::uint64_t wanted_bytes, Duration limit) {
  grant_.wanted_bytes = wanted_bytes;
  file_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) file_ = open_unlinked(directory);
  if (file_ < 0) {
    grant_.error = errno;
    return;
  }
  struct statfs system {};
  is_disk_ = ::fstatfs(file_, &system) == 0 && system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC;
  grow(limit);
}

HeldMemory::~HeldMemory() {
  if (file_ >= 0) ::close(file_);
}

// Grows in small steps, because a step that does not fit is undone as a whole. Otherwise members that allocate at the
// same time would fail in turns.
void HeldMemory::grow(Duration limit) {
  const std::uint64_t most = std::min(grant_.wanted_bytes, file_size_limit());
  if (most < grant_.wanted_bytes) grant_.error = EFBIG;
  const auto end = Clock::now() + limit;
  for (const std::uint64_t step : {mebibyte, mebibyte / 16, mebibyte / 256}) {
    while (grant_.got_bytes + step <= most) {
      if (Clock::now() >= end) {
        grant_.wanted_bytes = grant_.got_bytes;  // the allocation is slow, but it works
        return;
      }
      const int error = allocate(file_, grant_.got_bytes, step);
      if (error != 0) {
        grant_.error = error;
        break;
      }
      grant_.got_bytes += step;
    }
  }
}

ProbeToken::ProbeToken() { [[maybe_unused]] const auto got = ::getrandom(content_.data(), content_.size(), 0); }

Bytes ProbeToken::offer() const {
  Writer writer;
  writer.put(reinterpret_cast<std::uintptr_t>(content_.data())).put(std::span<const std::byte>(content_));
  return writer.take();
}

ReadResult read_token(int process, std::span<const std::byte> offer) {
  Reader reader(offer);
  const auto address = reader.get<std::uintptr_t>();
  const Bytes expected = reader.get_bytes();
  reader.expect_done();
  std::array<std::byte, ProbeToken::size_bytes> found{};
  const iovec here{found.data(), found.size()};
  const iovec there{reinterpret_cast<void*>(address), found.size()};  // NOLINT: an address of another process
  const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
  if (got < 0) return {false, errno};
  const bool same = got == static_cast<ssize_t>(found.size()) && std::ranges::equal(found, expected);
  return {same, 0};
}

ResourceGrant try_lock(std::uint64_t wanted_bytes) {
  ResourceGrant grant{.wanted_bytes = wanted_bytes};
  if (wanted_bytes == 0) return grant;
  void* memory = ::mmap(nullptr, wanted_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    grant.error = errno;
    return grant;
  }
  if (::mlock(memory, wanted_bytes) == 0) {
    grant.got_bytes = wanted_bytes;
  } else {
    grant.error = errno;
  }
  ::munmap(memory, wanted_bytes);
  return grant;
}

IndexSet reachable_pus() {
  constexpr std::size_t words = 1024;  // 65536 processors; the kernel refuses masks that are too short
  std::vector<std::uint64_t> own(words);
  std::vector<std::uint64_t> all(words, ~std::uint64_t{0});
  const std::size_t size = words * sizeof own[0];
  const auto as_set = [](std::vector<std::uint64_t>& mask) { return reinterpret_cast<cpu_set_t*>(mask.data()); };
  IndexSet reachable;
  if (::sched_getaffinity(0, size, as_set(own)) != 0) return reachable;
  // The kernel grants the part that the cpuset allows.
  const bool granted = ::sched_setaffinity(0, size, as_set(all)) == 0;
  if (::sched_getaffinity(0, size, as_set(all)) != 0) all = own;
  if (granted) ::sched_setaffinity(0, size, as_set(own));
  for (std::size_t bit = 0; bit < words * 64; ++bit) {
    if ((all[bit / 64] >> (bit % 64) & 1U) != 0) reachable.insert(static_cast<int>(bit));
  }
  return reachable;
}

double clock_cost_ns() {
  constexpr int batches = 20;
  constexpr int readings = 100;
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = Clock::now();
    for (int i = 1; i < readings; ++i) static_cast<void>(Clock::now());
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    best = std::min(best, took.count() / readings);
  }
  return best;
}

std::uint64_t fair_share_bytes(std::uint64_t free_bytes, std::size_t members) {
  constexpr std::uint64_t page = 4096;
  const std::uint64_t share = free_bytes / 2 / std::max<std::size_t>(members, 1);
  return std::min(wanted_shared_bytes, share / page * page);
}

std::vector<std::string> mpi_libraries(std::string_view maps) {
  std::vector<std::string> found;
  for (const std::string& line : split(maps, '\n')) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!name.starts_with("libmpi.so") && !name.starts_with("libmpich.so")) continue;
    if (std::ranges::find(found, path) == found.end()) found.push_back(path);
  }
  return found;
}

std::string chosen_word(std::string_view line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(line.substr(open + 1, close - open - 1));
}

}  // namespace lockstep::command
