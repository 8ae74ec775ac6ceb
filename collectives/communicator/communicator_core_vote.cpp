// SPDX-License-Identifier: Apache-2.0
// Lets members vote on a call before GPUs run it: whether all can, and whether their requests fit. The vote is a call
// with the signature of the other, so that different calls are found before NCCL is entered.
#include "collectives/communicator/communicator_core_gpus.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

enum VoteSlot : std::size_t { cannot, counts, places, other_streams };

// Returns a 64-bit hash of one message between two members. Sums of such hashes are equal only if all messages are
// equal, but for accidents.
std::uint64_t bits_of(int from, int to, std::size_t bytes) {
  const auto mix = [](std::uint64_t value) {
    value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9U;
    value = (value ^ value >> 27U) * 0x94d049bb133111ebU;
    return value ^ value >> 31U;
  };
  const auto pair = static_cast<std::uint64_t>(from) << 32U | static_cast<std::uint64_t>(to);
  return mix(mix(pair + 0x9e3779b97f4a7c15U) + bytes);
}

}  // namespace

// Returns the same object again for the same signature and choice, which are equal on all members.
std::shared_ptr<const Plan> CommunicatorCore::meeting(const Spec& spec, std::string_view name, std::uint64_t choice) {
  constexpr std::size_t kept = 1024;
  const auto key = std::pair(hash(signature_of(spec)), choice);
  const auto known = meetings_.find(key);
  if (known != meetings_.end()) return known->second;
  if (meetings_.size() == kept) meetings_.clear();
  const auto plain = members_.planner().plan({.collective = Collective::all_reduce,
                                              .type = DataType::u64,
                                              .op = ReduceOp::sum,
                                              .element_bytes = sizeof(std::uint64_t),
                                              .count = std::tuple_size_v<DeviceVote>});
  auto plan = std::make_shared<Plan>(*plain);
  plan->algorithm = name;
  plan->choice += choice;
  plan->stands_for = spec;
  meetings_[key] = plan;
  return plan;
}

CommunicatorCore::DeviceVote CommunicatorCore::vote_of(const DeviceCall& gpus) const {
  DeviceVote vote{};
  vote[VoteSlot::cannot] = fits(gpus.device) ? 0 : 1;
  for (const nccl::NcclCall& step : gpus.steps) {
    for (int i = 0; has_own_counts(step.spec.collective) && i < size(); ++i) {
      if (i == rank()) continue;
      vote[VoteSlot::counts] += bits_of(rank(), i, nccl::bytes_to(step.spec, rank(), i));
      vote[VoteSlot::counts] -= bits_of(i, rank(), nccl::bytes_from(step.spec, rank(), i));
    }
  }
  // Sums to zero if the value is equal on all members.
  vote[VoteSlot::places] = rank() == 0 ? -(static_cast<std::uint64_t>(size()) - 1) * gpus.places : gpus.places;
  vote[VoteSlot::other_streams] = has_other_stream(gpus) ? 1 : 0;
  return vote;
}

void CommunicatorCore::decide(DeviceCall& gpus, const Origin& origin) {
  auto& [mine, all] = *votes_;
  gpus.places = nccl_communicator_ ? nccl_communicator_->places_of(gpus.steps) : 0;
  mine = vote_of(gpus);
  members_.engine().run({.plan = gpus.meeting,
                         .input = mine.data(),
                         .output = all.data(),
                         .kernel = find_kernel(DataType::u64, ReduceOp::sum),
                         .origin = origin,
                         .limit = members_.options().timeout});
  gpus.path = DeviceCall::DevicePath::host;
  gpus.set_same_memory(all[VoteSlot::places] == 0);
  if (all[VoteSlot::cannot] != 0) return;
  if (all[VoteSlot::counts] != 0) or_break([&] { throw different_counts(gpus.steps.front().spec); });
  const bool is_wrong = all[VoteSlot::other_streams] != 0;
  choose_way(gpus, origin);
  if (is_wrong && gpus.path == DeviceCall::DevicePath::nccl) or_break([&] { throw other_stream(gpus, origin); });
}

// True if the stream belongs to another GPU than the data. NCCL accepts only streams of its member's GPU.
bool CommunicatorCore::has_other_stream(const DeviceCall& gpus) const {
  const int device = nccl_communicator_ ? nccl_communicator_->device() : gpus.device;
  return gpus.stream_device != DeviceCall::anywhere && device >= 0 && gpus.stream_device != device;
}

// Returns the same error on all members: that of the first member with a wrong stream.
Error CommunicatorCore::other_stream(const DeviceCall& gpus, const Origin& origin) {
  const std::string mine = has_other_stream(gpus)
                               ? text("rank ", rank(), " gave a stream of GPU ", gpus.stream_device, " at ",
                                      place(origin), " for data in the memory of GPU ", nccl_communicator_->device())
                               : "";
  const auto all = JointSetup(members_).in_exchange([&] {
    Writer writer;
    return members_.exchange().all_gather("streams of other GPUs", writer.put(std::string_view(mine)).take());
  });
  std::string first;
  for (const Bytes& each : all) {
    if (first.empty()) first = Reader(each).get_string();
  }
  return {
      Code::usage,
      text("on \"", members_.options().name, "\", ", to_text(signature_of(gpus.steps.front().spec)), ": ", first),
      "make each member's stream while its own GPU is the current one (cudaSetDevice), or give nullptr, the default "
      "stream of the GPU that has the data"};
}

// Returns the same error on all members, which exchange their counts. It names the first pair that differs, as the
// host's call would.
Error CommunicatorCore::different_counts(const Spec& spec) {
  Writer mine;
  for (int i = 0; i < size(); ++i) {
    mine.put(static_cast<std::uint64_t>(nccl::bytes_to(spec, rank(), i)));
    mine.put(static_cast<std::uint64_t>(nccl::bytes_from(spec, rank(), i)));
  }
  const auto all = JointSetup(members_).in_exchange(
      [&] { return members_.exchange().all_gather("counts that do not fit", mine.take()); });
  std::vector<std::vector<std::uint64_t>> gives(all.size());
  std::vector<std::vector<std::uint64_t>> takes(all.size());
  for (std::size_t member = 0; member < all.size(); ++member) {
    Reader theirs(all[member]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      gives[member].push_back(theirs.get<std::uint64_t>());
      takes[member].push_back(theirs.get<std::uint64_t>());
    }
  }
  for (std::size_t to = 0; to < all.size(); ++to) {
    for (std::size_t from = 0; from < all.size(); ++from) {
      if (from == to || gives[from][to] == takes[to][from]) continue;
      return {
          Code::mismatch,
          text("rank ", from, " sent ", gives[from][to], " bytes to rank ", to, ", which receives ", takes[to][from]),
          "let both sides of a message have the same count and type"};
    }
  }
  return {Code::internal, "counts that do not fit, and none that differ"};
}

void CommunicatorCore::make_nccl_communicator(int device, const Origin& origin) {
  or_break([&] {
    nccl::NcclId id{};
    JointSetup(members_).in_exchange([&] {
      if (rank() == 0) id = nccl::library()->make_id();
      std::ranges::copy(members_.exchange().broadcast("NCCL's name of the group", id, 0), id.begin());
    });
    GpuWait pause(*this, "making NCCL's group", origin);
    nccl_communicator_ =
        std::make_unique<nccl::NcclCommunicator>(*nccl::library(), id, size(), rank(), device, std::ref(pause));
  });
}

}  // namespace lockstep::detail
