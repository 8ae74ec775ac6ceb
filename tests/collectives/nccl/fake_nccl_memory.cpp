// SPDX-License-Identifier: Apache-2.0
// Memory that the tests' NCCL gives and knows, and what is done wrong with it.
#include <algorithm>

#include "tests/collectives/nccl/fake_nccl_group.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {

std::byte* FakeNccl::allocate(int device, std::size_t bytes) {
  fail_if_told();
  std::byte* const memory = gpus_.allocate(device, bytes);
  const std::lock_guard lock(memory_mutex_);
  memories_[memory] = bytes;
  return memory;
}

void FakeNccl::free(std::byte* memory) noexcept {
  const std::lock_guard lock(memory_mutex_);
  if (memories_.erase(memory) == 0 || known_.contains(memory)) {
    ++mistakes_;
    return;
  }
  gpus_.free(gpus_.where(memory).device, memory);
}

namespace {
struct FakeRegistration final : nccl::Registration {
  int number = 0;
};
}  // namespace

std::unique_ptr<nccl::Registration> FakeNccl::add(nccl::NcclComm* member, std::byte* memory, std::size_t bytes,
                                                  nccl::RegistrationMode how) {
  fail_if_told();
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  Group& group = *mine.group;
  const std::lock_guard lock(group.mutex);
  const auto rank = static_cast<std::size_t>(mine.rank);
  const int number = ++group.added[rank];
  if (group.added_bytes.size() < static_cast<std::size_t>(number)) group.added_bytes.push_back(bytes);
  if (group.added_bytes[static_cast<std::size_t>(number) - 1] != bytes || how != registering_)
    throw Error(Code::internal, "members of NCCL's group make unequal memory known");
  group.known[rank].push_back({number, memory, bytes});
  mine.busy = polls;
  mine.added = number;
  ++registered_;
  ++ever_registered_;
  const std::lock_guard all(memory_mutex_);
  if (!memories_.contains(memory) || !known_.insert(memory).second) ++mistakes_;
  auto made = std::make_unique<FakeRegistration>();
  made->number = number;
  return made;
}

void FakeNccl::remove(nccl::NcclComm* member, nccl::Registration& registration) {
  fail_if_told();
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  const std::lock_guard lock(mine.group->mutex);
  auto& known = mine.group->known[static_cast<std::size_t>(mine.rank)];
  const auto found =
      std::ranges::find(known, static_cast<FakeRegistration&>(registration).number, &Group::Known::number);
  if (found == known.end()) throw Error(Code::internal, "NCCL is told to forget what it does not know");
  mine.busy = polls;
  --registered_;
  const std::lock_guard all(memory_mutex_);
  known_.erase(found->memory);
  known.erase(found);
}

}  // namespace lockstep::test
