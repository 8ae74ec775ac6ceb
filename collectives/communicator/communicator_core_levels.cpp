// SPDX-License-Identifier: Apache-2.0
// Runs calls of members on GPUs in levels, if some share a GPU or a node. Members find their arrangement when all have
// their data on GPUs for the first time.
#include <algorithm>
#include <bit>

#include "collectives/communicator/communicator_core_gpus.hpp"
#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Returns a number for each entry. Equal entries have equal numbers.
std::vector<int> numbers_of(const std::vector<Bytes>& all) {
  std::vector<int> numbers;
  numbers.reserve(all.size());
  for (const Bytes& each : all) numbers.push_back(static_cast<int>(std::ranges::find(all, each) - all.begin()));
  return numbers;
}

std::size_t all_bytes_of(const Spec& spec) {
  const bool has_blocks = spec.collective == Collective::reduce_scatter || spec.collective == Collective::all_gather;
  const auto parts = static_cast<std::size_t>(std::max(spec.gives.parts(), spec.takes.parts()));
  return spec.count * spec.element_bytes * (has_blocks ? parts : 1);
}

}  // namespace

void CommunicatorCore::run_as_agreed(const CallRequest& request, int device) {
  const ExclusiveUse use(members_, request.origin);
  BoundCall bound_call = bound_call_from(request, QueryRule::once);
  if (bound_call.gpus) {
    bound_call.gpus->device = device;
    choose_way(*bound_call.gpus, request.origin);
  }
  run_inside(bound_call, request.origin);
}

// True if data on this device can take the path that the members have found.
bool CommunicatorCore::fits(int device) const {
  if (!nccl_communicator_ && !levels_) return device >= 0;
  return device == DeviceCall::anywhere ||
         device == (nccl_communicator_ ? nccl_communicator_->device() : levels_->device());
}

bool CommunicatorCore::can_go_by_levels(const DeviceCall& gpus) const {
  return levels_ &&
         std::ranges::all_of(gpus.steps, [&](const nccl::NcclCall& step) { return levels_->can_do(step.spec); });
}

// True if the call may run on GPUs, as far as is known before members ask each other.
bool CommunicatorCore::may_go(const DeviceCall& gpus) const {
  return may_use_nccl_ && (nccl_communicator_ || !levels_ || can_go_by_levels(gpus));
}

// Chooses the path of a call that has its data on GPUs at all members.
void CommunicatorCore::choose_way(DeviceCall& gpus, const Origin& origin) {
  if (!nccl_communicator_ && !levels_ && may_use_nccl_) or_break([&] { arrange(gpus.device, origin); });
  gpus.path = DeviceCall::DevicePath::host;
  if (nccl_communicator_)
    gpus.path = DeviceCall::DevicePath::nccl;
  else if (can_go_by_levels(gpus))
    gpus.path = DeviceCall::DevicePath::levels;
}

// Finds out which members share a GPU. NCCL refuses those, and not on all members at once.
void CommunicatorCore::arrange(int device, const Origin& origin) {
  const MemberGroups by_gpu(JointSetup(members_).in_exchange([&] {
    return numbers_of(members_.exchange().all_gather("serials of the GPUs", bytes_of(gpu::backend()->id(device))));
  }));
  const std::size_t gpus = by_gpu.groups().size();
  const auto members = static_cast<std::size_t>(size());
  if (gpus < members) {
    if (gpus > 1) return make_levels(by_gpu, true, device);
    may_use_nccl_ = false;
    members_.exchange().log().info(
        text("all members of \"", members_.options().name, "\" share a GPU: NCCL is not used among them"));
    return;
  }
  const std::size_t nodes = by_node().groups().size();
  spans_nodes_ = 1 < nodes && nodes < members;
  if (spans_nodes_)
    join_across(device, origin);
  else
    make_nccl_communicator(device, origin);
}

MemberGroups CommunicatorCore::by_node() const {
  std::vector<int> nodes;
  for (const int rank : members_.ranks()) nodes.push_back(members_.topology()->member(rank).node);
  return MemberGroups(nodes);
}

// Tries NCCL in a communicator of its own, so that this one survives if NCCL cannot connect the nodes.
void CommunicatorCore::join_across(int device, const Origin& origin) {
  std::string why;
  const auto trying = JointSetup(members_).in_exchange([&] {
    auto all_nodes = part(0, rank(), "across nodes", true);
    // A failure so far must not be heard while NCCL's communicator is made.
    members_.exchange().barrier("before NCCL is tried across nodes");
    return all_nodes;
  });
  try {
    trying->make_nccl_communicator(device, origin);
  } catch (const Error& error) {
    why = error.detail();
  } catch (const std::exception& other) {
    why = other.what();
  }
  const std::byte mine{!why.empty()};
  const auto all = JointSetup(members_).in_exchange([&] {
    return members_.exchange().all_gather("whether NCCL reaches all nodes", {&mine, 1});
  });
  if (std::ranges::all_of(all, [](const Bytes& each) { return each == Bytes{std::byte{0}}; })) {
    nccl_communicator_ = std::move(trying->nccl_communicator_);
    return;
  }
  members_.exchange().log().warn(text("NCCL does not reach all nodes of \"", members_.options().name,
                                      "\", so it is used within each of them", why.empty() ? "" : ": ", why));
  make_levels(by_node(), false, device);
}

// Makes the two levels. Members that share a GPU combine there, and one of each GPU uses NCCL to the others. Members
// of a node use NCCL, and reach other nodes through the host.
void CommunicatorCore::make_levels(const MemberGroups& member_groups, bool share_gpus, int device) {
  const bool by_rails = !share_gpus && member_groups.is_even();
  const int group = member_groups.group_of(rank());
  const int place = member_groups.place_of(rank());
  GpuLevels::SubCommunicators sub_communicators;
  JointSetup(members_).in_exchange([&] {
    sub_communicators.near = part(member_groups.group(rank()).size() > 1 ? group : -1, place, "near", !share_gpus);
    sub_communicators.across = part(by_rails || place == 0 ? place : -1, group, "across", share_gpus);
  });
  levels_ = std::make_unique<GpuLevels>(member_groups,
                                        by_rails ? GpuLevels::LevelScheme::rails : GpuLevels::LevelScheme::owners,
                                        rank(), device, std::move(sub_communicators));
}

std::shared_ptr<CommunicatorCore> CommunicatorCore::part(int colour, int key, std::string_view name, bool has_nccl) {
  CommunicatorOptions options;
  options.name = text(members_.options().name, '/', name);
  options.node_memory = members_.options().node_memory;
  options.timeout = members_.options().timeout;
  options.checksums = members_.options().checksums;
  options.nccl = has_nccl;
  return factory_.split_inside(colour, key, std::move(options));
}

// Ends the levels, also after a failed call: members that wait inside for this one are told.
void CommunicatorCore::end_levels() noexcept {
  if (!levels_) return;
  if (members_.engine().failed()) {
    const auto& failure = members_.engine().failure();
    levels_->refuse(failure ? Error(failure->code, failure->text) : Error(Code::peer_failed, "it has failed before"));
  }
  levels_.reset();
}

// Runs the levels. The host waits between the stages, and first for the earlier work in the stream.
void CommunicatorCore::run_levels(const BoundCall& bound_call, const StreamMarks& behind) {
  if (bound_call.stream) wait_for_stream(*bound_call.stream, bound_call.call.origin);
  wait_for_marks(behind, bound_call.call.origin);
  or_break([&] {
    wait_for_nccl(bound_call.call.origin);
    levels_->run(bound_call.gpus->steps, members_.options().timeout, bound_call.call.origin);
  });
}

// Returns the trial of a call that members of several nodes can run in two ways, until the faster one is known. A call
// in a stream always uses NCCL, because the levels make the host wait.
Trial* CommunicatorCore::trial_of(const BoundCall& bound_call) {
  if (!spans_nodes_ || bound_call.stream) return nullptr;
  DeviceCall& gpus = *bound_call.gpus;
  if (!levels_) or_break([&] { make_levels(by_node(), false, nccl_communicator_->device()); });
  if (!can_go_by_levels(gpus)) return nullptr;
  std::size_t bytes = 0;
  for (const nccl::NcclCall& step : gpus.steps) bytes += all_bytes_of(step.spec);
  const Spec& spec = gpus.steps.front().spec;
  Trial& trial = trials_[{spec.collective, spec.type, spec.op, spec.order, std::bit_width(bytes)}];
  if (!trial.is_over()) return &trial;
  if (trial.way() == 1) gpus.path = DeviceCall::DevicePath::levels;
  return nullptr;
}

void CommunicatorCore::run_in_turn(Trial& trial, const BoundCall& bound_call, CallHandle handle) {
  const Origin& origin = bound_call.call.origin;
  meet({}, origin);  // A late member would be measured.
  const Duration begun = members_.engine().world().now();
  if (trial.way() == 1) {
    run_levels(bound_call, pending_calls_.at(handle).behind);
  } else {
    begin_in_nccl(bound_call.gpus->steps, bound_call, handle);
    wait_for_gpus(handle);
  }
  if (!trial.took(members_.engine().world().now() - begun)) return;
  trial.conclude(meet(trial.nanoseconds(), origin));
  members_.exchange().log().info(
      text("on \"", members_.options().name, "\", ", to_text(signature_of(bound_call.gpus->steps.front().spec)),
           " goes ", trial.way() == 1 ? "by NCCL in the nodes, and among them by the host" : "by NCCL alone",
           ", which was the faster way"));
}

// Returns the largest value of all members for each entry. It returns when all members have come.
std::span<const std::uint64_t> CommunicatorCore::meet(const std::vector<std::uint64_t>& mine, const Origin& origin) {
  std::ranges::copy(mine, times_->begin());
  const std::size_t count = std::max<std::size_t>(mine.size(), 1);
  const std::span all = std::span(*times_).last(Trial::turns);
  members_.engine().run({.plan = members_.planner().plan({.collective = Collective::all_reduce,
                                                          .type = DataType::u64,
                                                          .op = ReduceOp::max,
                                                          .element_bytes = sizeof(std::uint64_t),
                                                          .count = count}),
                         .input = times_->data(),
                         .output = all.data(),
                         .kernel = find_kernel(DataType::u64, ReduceOp::max),
                         .origin = origin,
                         .limit = members_.options().timeout});
  return all.first(count);
}

}  // namespace lockstep::detail
