// SPDX-License-Identifier: Apache-2.0
// Counts the votes of the members on a call, and names the members with requests that do not fit.
#include "collectives/communicator/device_votes.hpp"

#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/communicator/joint_setup.hpp"
#include "collectives/planner.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {
namespace {

struct VoteSlot {
  enum : std::size_t { cannot, counts, other_streams };
};

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

// Makes the plan of the vote: a small all_reduce that stands for the voted call in agreements and errors.
std::shared_ptr<const Plan> DeviceVotes::plan_for(const Spec& spec, std::string_view name, PlanChoice vote) {
  constexpr std::size_t kept = 1024;
  const auto key = std::pair(hash(signature_of(spec)), vote.number());
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  if (plans_.size() == kept) plans_.clear();
  const auto plain = member_.planner().plan({.collective = Collective::all_reduce,
                                             .type = DataType::u64,
                                             .op = ReduceOp::sum,
                                             .element_bytes = sizeof(std::uint64_t),
                                             .count = std::tuple_size_v<Vote>});
  auto plan = std::make_shared<Plan>(*plain);
  plan->algorithm = name;
  plan->choice.vote = vote.vote;
  plan->choice.tensor_hash = vote.tensor_hash;
  plan->stands_for = spec;
  plans_[key] = plan;
  return plan;
}

DeviceVotes::Vote DeviceVotes::vote_of(const GpuCall& call) const {
  Vote vote{};
  vote[VoteSlot::cannot] = arrangement_.fits(call.device) ? 0 : 1;
  for (const nccl::NcclCall& step : call.steps) {
    for (int i = 0; has_own_counts(step.spec.collective) && i < member_.size(); ++i) {
      if (i == member_.rank()) continue;
      vote[VoteSlot::counts] += bits_of(member_.rank(), i, nccl::bytes_to(step.spec, member_.rank(), i));
      vote[VoteSlot::counts] -= bits_of(i, member_.rank(), nccl::bytes_from(step.spec, member_.rank(), i));
    }
  }
  vote[VoteSlot::other_streams] = has_other_stream(call) ? 1 : 0;
  return vote;
}

void DeviceVotes::keep_memory() { keep_forever(votes_); }

void DeviceVotes::decide(GpuCall& call, const Origin& origin) {
  auto& [mine, all] = *votes_;
  mine = vote_of(call);
  member_.engine().run({.plan = call.vote,
                        .input = mine.data(),
                        .output = all.data(),
                        .kernel = find_kernel(DataType::u64, ReduceOp::sum),
                        .origin = origin,
                        .limit = member_.options().timeout});
  call.choose(GpuCall::Path::host);
  if (all[VoteSlot::cannot] != 0) return;
  if (all[VoteSlot::counts] != 0) or_break(member_, [&] { throw different_counts(call.steps.front().spec); });
  const bool is_wrong = all[VoteSlot::other_streams] != 0;
  arrangement_.choose_path(call, origin);
  if (is_wrong && call.path == GpuCall::Path::nccl) or_break(member_, [&] { throw other_stream(call, origin); });
}

// True if the stream belongs to another GPU than the data. NCCL accepts only streams of its member's GPU.
bool DeviceVotes::has_other_stream(const GpuCall& call) const {
  const OwnedNcclCommunicator& group = arrangement_.nccl();
  const int device = group.is_made() ? group.device() : call.device;
  return call.stream_device != GpuCall::anywhere && device >= 0 && call.stream_device != device;
}

// Returns the same error on all members: that of the first member with a wrong stream.
Error DeviceVotes::other_stream(const GpuCall& call, const Origin& origin) const {
  const std::string mine = has_other_stream(call)
                               ? text("rank ", member_.rank(), " gave a stream of GPU ", call.stream_device, " at ",
                                      place(origin), " for data in the memory of GPU ", arrangement_.nccl().device())
                               : "";
  const auto all = JointSetup(member_).in_exchange([&] {
    Writer writer;
    return member_.exchange().all_gather("streams of other GPUs", writer.put(std::string_view(mine)).take());
  });
  std::string first;
  for (const Bytes& each : all) {
    if (first.empty()) first = Reader(each).get_string();
  }
  return {
      Code::usage,
      text("on \"", member_.options().name, "\", ", to_text(signature_of(call.steps.front().spec)), ": ", first),
      "make each member's stream while its own GPU is the current one (cudaSetDevice), or give nullptr, the default "
      "stream of the GPU that has the data"};
}

// Returns the same error on all members, which exchange their counts. It names the first pair that differs, as the
// host's call would.
Error DeviceVotes::different_counts(const Spec& spec) const {
  Writer mine;
  for (int i = 0; i < member_.size(); ++i) {
    mine.put(static_cast<std::uint64_t>(nccl::bytes_to(spec, member_.rank(), i)));
    mine.put(static_cast<std::uint64_t>(nccl::bytes_from(spec, member_.rank(), i)));
  }
  const auto all = JointSetup(member_).in_exchange(
      [&] { return member_.exchange().all_gather("counts that do not fit", mine.take()); });
  std::vector<std::vector<std::uint64_t>> sent_bytes(all.size());
  std::vector<std::vector<std::uint64_t>> received_bytes(all.size());
  for (std::size_t member = 0; member < all.size(); ++member) {
    Reader theirs(all[member]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      sent_bytes[member].push_back(theirs.get<std::uint64_t>());
      received_bytes[member].push_back(theirs.get<std::uint64_t>());
    }
  }
  for (std::size_t to = 0; to < all.size(); ++to) {
    for (std::size_t from = 0; from < all.size(); ++from) {
      if (from == to || sent_bytes[from][to] == received_bytes[to][from]) continue;
      return {Code::mismatch,
              text("rank ", from, " sent ", sent_bytes[from][to], " bytes to rank ", to, ", which receives ",
                   received_bytes[to][from]),
              "let both sides of a message have the same count and type"};
    }
  }
  return {Code::internal, "counts that do not fit, and none that differ"};
}

}  // namespace lockstep::detail
