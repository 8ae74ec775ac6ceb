// SPDX-License-Identifier: Apache-2.0
#include "bench/neighbour.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

std::byte* map(int file, int rights) {
  void* const memory = ::mmap(nullptr, NeighbourMemory::size, rights, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

NeighbourMemory::NeighbourMemory(Communicator& world) {
  const int file = ::memfd_create("lockstep-bench", MFD_CLOEXEC);
  // Taken now, so that too little memory is seen here and not by a signal later.
  const bool there = file >= 0 && ::posix_fallocate(file, 0, static_cast<off_t>(size)) == 0;
  const std::array<int, 2> mine = {::getpid(), there ? file : -1};
  std::vector<int> all(2 * static_cast<std::size_t>(world.size()));
  world.all_gather(mine, all);
  const Topology& topology = world.topology();
  const auto node_of = [&](int index) { return topology.member(world.ranks()[static_cast<std::size_t>(index)]).node; };
  int next = world.rank();
  do {
    next = (next + 1) % world.size();
  } while (node_of(next) != node_of(world.rank()));
  if (there) own_ = map(file, PROT_READ | PROT_WRITE);
  const auto at = 2 * static_cast<std::size_t>(next);
  if (next != world.rank() && all[at + 1] >= 0) {
    const std::string path = text("/proc/", all[at], "/fd/", all[at + 1]);
    const int theirs = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (theirs >= 0) {
      neighbours_ = map(theirs, PROT_READ);
      ::close(theirs);
    }
  }
  world.barrier();
  if (file >= 0) ::close(file);
}

NeighbourMemory::~NeighbourMemory() {
  if (own_ != nullptr) ::munmap(own_, size);
  if (neighbours_ != nullptr) ::munmap(neighbours_, size);
}

}  // namespace lockstep::bench
