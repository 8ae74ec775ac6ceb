// SPDX-License-Identifier: Apache-2.0
// Makes NCCL's group of the members, or levels if some share a GPU.
#include "collectives/communicator/gpu_arrangement.hpp"

#include <algorithm>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/communicator/joint_setup.hpp"
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

}  // namespace

bool GpuArrangement::fits(int device) const {
  if (!is_made()) return device >= 0;
  return device == GpuCall::anywhere || device == (nccl_.is_made() ? nccl_.device() : levels_->device());
}

bool GpuArrangement::has_levels_for(const GpuCall& call) const {
  return levels_ &&
         std::ranges::all_of(call.steps, [&](const nccl::NcclCall& step) { return levels_->can_do(step.spec); });
}

void GpuArrangement::choose_path(GpuCall& call, const Origin& origin) {
  if (!is_made() && may_run()) or_break(member_, [&] { make(call.device, origin); });
  call.choose(GpuCall::Path::host);
  if (nccl_.is_made())
    call.choose(GpuCall::Path::nccl);
  else if (has_levels_for(call))
    call.choose(GpuCall::Path::levels);
}

void GpuArrangement::make(int device, const Origin& origin) {
  const MemberGroups by_gpu(JointSetup(member_).in_exchange([&] {
    return numbers_of(member_.exchange().all_gather("serials of the GPUs", bytes_of(gpu::backend()->id(device))));
  }));
  const std::size_t gpus = by_gpu.groups().size();
  const auto members = static_cast<std::size_t>(member_.size());
  if (gpus < members) {
    if (gpus > 1) return make_levels(by_gpu, device);
    query_bytes_ = DevicePath::never;
    member_.exchange().log().info(
        text("all members of \"", member_.options().name, "\" share a GPU: NCCL is not used among them"));
    return;
  }
  nccl_.join(device, origin);
}

// Makes the two levels. Members that share a GPU combine there, and one of each GPU uses NCCL to the others.
void GpuArrangement::make_levels(const MemberGroups& member_groups, int device) {
  const int group = member_groups.group_of(member_.rank());
  const int place = member_groups.place_of(member_.rank());
  GpuLevels::SubCommunicators sub_communicators;
  JointSetup(member_).in_exchange([&] {
    sub_communicators.group = part(member_groups.group(member_.rank()).size() > 1 ? group : -1, place, "group", false);
    sub_communicators.between = part(place == 0 ? 0 : -1, group, "across", true);
  });
  levels_ = std::make_unique<GpuLevels>(member_groups, member_.rank(), device, std::move(sub_communicators));
}

std::shared_ptr<CommunicatorCore> GpuArrangement::part(int colour, int key, std::string_view name, bool has_nccl) {
  CommunicatorOptions options;
  options.name = text(member_.options().name, '/', name);
  options.node_memory = member_.options().node_memory;
  options.timeout = member_.options().timeout;
  options.checksums = member_.options().checksums;
  options.nccl = has_nccl;
  return factory_.split_inside(colour, key, std::move(options));
}

void GpuArrangement::end_levels() noexcept {
  if (!levels_) return;
  if (member_.engine().failed()) {
    const auto& failure = member_.engine().failure();
    levels_->refuse(failure ? Error(failure->code, failure->text) : Error(Code::peer_failed, "it has failed before"));
  }
  levels_.reset();
}

}  // namespace lockstep::detail
