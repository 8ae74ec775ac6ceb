// SPDX-License-Identifier: Apache-2.0
// Allocates GPU memory together with all members. It is NCCL's, and registered there, if they use NCCL.
#include <algorithm>
#include <cstring>

#include "collectives/communicator/gpu_path.hpp"
#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/communicator/joint_setup.hpp"
#include "collectives/gpu/memory.hpp"

namespace lockstep::detail {
namespace {

// Holds a member's wishes for the allocation. An error of one member fails all.
struct MemoryOffer {
  std::uint16_t code = 0;  // Zero means no error.
  std::string wrong = {};
  std::uint64_t bytes = 0;
  nccl::RegistrationMode how = nccl::RegistrationMode::none;
  std::vector<std::uint64_t> dropped = {};

  void fail(const Error& error) {
    code = static_cast<std::uint16_t>(error.code());
    wrong = error.detail();
  }
  Bytes packed() const {
    Writer writer;
    writer.put(code).put(std::string_view(wrong)).put(bytes).put(how);
    return writer.put(std::as_bytes(std::span(dropped))).take();
  }
};

// Combines the offers of all members: the largest size, the weakest registration, and the memory that all have
// dropped. Throws the error of a member.
MemoryOffer agree(const std::vector<Bytes>& all) {
  MemoryOffer agreed;
  for (std::size_t member = 0; member < all.size(); ++member) {
    Reader theirs(all[member]);
    const auto code = theirs.get<std::uint16_t>();
    const std::string wrong = theirs.get_string();
    if (code != 0) throw Error(static_cast<Code>(code), text("memory of GPUs: rank ", member, ": ", wrong));
    agreed.bytes = std::max(agreed.bytes, theirs.get<std::uint64_t>());
    const auto how = theirs.get<nccl::RegistrationMode>();
    agreed.how = member == 0 ? how : std::min(agreed.how, how);
    const Bytes bytes = theirs.get_bytes();
    std::vector<std::uint64_t> dropped(bytes.size() / sizeof(std::uint64_t));
    if (!dropped.empty()) std::memcpy(dropped.data(), bytes.data(), dropped.size() * sizeof(std::uint64_t));
    if (member == 0)
      agreed.dropped = std::move(dropped);
    else
      std::erase_if(agreed.dropped, [&](std::uint64_t each) { return std::ranges::count(dropped, each) == 0; });
  }
  return agreed;
}

// Runs f. If it throws on one member, it throws on all.
template <class F>
void together(Exchange& exchange, const F& f) {
  MemoryOffer mine;
  try {
    f();
  } catch (const Error& error) {
    mine.fail(error);
  }
  agree(exchange.all_gather("memory of GPUs is there", mine.packed()));
}

}  // namespace

std::shared_ptr<std::byte> GpuPath::allocate(std::size_t count, std::size_t element_bytes, int device,
                                             const Origin& origin) {
  constexpr std::size_t page = 4096;
  const OwnedNcclCommunicator& group = arrangement_.nccl();
  MemoryOffer mine;
  try {
    mine.bytes = (gpu::bytes_to_allocate(device, count, element_bytes) + page - 1) / page * page;
    if (arrangement_.may_run() && (group.is_made() ? group.device() == device : arrangement_.levels() == nullptr))
      mine.how = nccl::library()->registering();
    if (group.is_made()) mine.dropped = group.communicator().dropped();
  } catch (const Error& error) {
    mine.fail(error);
  }
  const MemoryOffer all = agree(member_.exchange().all_gather("memory of GPUs", mine.packed()));
  const bool is_wanted = all.how != nccl::RegistrationMode::none && all.bytes > 0;
  JointSetup(member_).in_exchange([&] {
    or_break(member_, [&] {
      if (is_wanted && !group.is_made()) arrangement_.make(device, origin);
      if (!group.is_made()) return;
      GpuWait pause(member_, "GPU work", origin);
      group.communicator().forget(all.dropped, std::ref(pause));
    });
  });
  if (is_wanted && group.is_made()) return allocate_by_nccl(all.bytes, all.how, origin);
  std::shared_ptr<std::byte> memory;
  together(member_.exchange(), [&] { memory = gpu::allocate(device, count, element_bytes); });
  return memory;
}

std::shared_ptr<std::byte> GpuPath::allocate_by_nccl(std::size_t bytes, nccl::RegistrationMode how,
                                                     const Origin& origin) {
  nccl::NcclInterface& library = *nccl::library();
  std::byte* memory = nullptr;
  try {
    together(member_.exchange(), [&] { memory = library.allocate(arrangement_.nccl().device(), bytes); });
  } catch (...) {
    if (memory != nullptr) library.free(memory);
    throw;
  }
  return or_break(member_, [&] {
    GpuWait pause(member_, "registering memory with NCCL", origin);
    return arrangement_.nccl().communicator().add(memory, bytes, how, std::ref(pause));
  });
}

}  // namespace lockstep::detail
