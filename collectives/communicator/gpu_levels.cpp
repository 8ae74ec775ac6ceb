// SPDX-License-Identifier: Apache-2.0
// Implements collectives on two levels of GPUs.
#include "collectives/communicator/gpu_levels.hpp"

#include <algorithm>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/joint_setup.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/gpu/packing.hpp"

namespace lockstep::detail {

GpuLevels::GpuLevels(MemberGroups member_groups, int me, int device, SubCommunicators sub_communicators)
    : member_groups_(std::move(member_groups)),
      me_(me),
      device_(device),
      sub_communicators_(std::move(sub_communicators)) {}

GpuLevels::~GpuLevels() {
  for (const auto& core : {sub_communicators_.group, sub_communicators_.between}) {
    if (core) core->close();
  }
}

// In the reproducible order each group must be a subtree of the balanced tree.
bool GpuLevels::can_do(const Spec& spec) const {
  switch (spec.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      return spec.op != ReduceOp::user && (spec.order == Order::fast || member_groups_.is_aligned());
    case Collective::all_gather:
    case Collective::broadcast:
      return true;
    default:
      return false;
  }
}

void GpuLevels::refuse(const Error& error) noexcept {
  for (const auto& core : {sub_communicators_.group, sub_communicators_.between}) {
    if (core) JointSetup(core->member()).refuse(error);
  }
}

// Gives the smaller communicators this call's limit first.
void GpuLevels::run(std::span<const nccl::NcclCall> steps, Duration limit, const Origin& origin) {
  for (const auto& core : {sub_communicators_.group, sub_communicators_.between}) {
    if (core) core->set_timeout(limit);
  }
  const gpu::DeviceGuard mine(device_);
  if (steps.size() == 1) return run_one(steps.front(), origin);
  run_together(steps, origin);
}

// Reduces avg to a sum with a later division, and premul_sum to a sum of scaled input.
void GpuLevels::run_one(const nccl::NcclCall& step, const Origin& origin) {
  if (step.spec.count == 0) return;
  LevelCall level_call{step.spec, step.input, step.output, step.spec.op == ReduceOp::avg, origin};
  if (step.spec.op == ReduceOp::premul_sum)
    level_call.input =
        scale(step, step.spec.count *
                        (cuts_input(step.spec.collective) ? static_cast<std::size_t>(member_groups_.members()) : 1));
  if (step.spec.op == ReduceOp::premul_sum || level_call.divides) level_call.spec.op = ReduceOp::sum;
  by_owners(level_call);
}

// Runs several steps as one on packed data. Packing multiplies by the factor, and unpacking divides.
void GpuLevels::run_together(std::span<const nccl::NcclCall> steps, const Origin& origin) {
  nccl::NcclCall all = steps.front();
  all.spec.count = 0;
  for (const nccl::NcclCall& step : steps) all.spec.count += step.spec.count;
  std::byte* const data = take(whole, all.spec.count * all.spec.element_bytes);
  all.input = all.output = data;
  all.spec.in_place = true;
  if (all.spec.op == ReduceOp::avg || all.spec.op == ReduceOp::premul_sum) all.spec.op = ReduceOp::sum;
  pack(steps, data, true);
  run_one(all, origin);
  pack(steps, data, false);
}

void GpuLevels::by_owners(const LevelCall& level_call) {
  switch (level_call.spec.collective) {
    case Collective::all_reduce:
      return all_reduce_by_owners(level_call);
    case Collective::reduce:
      return reduce_by_owners(level_call);
    case Collective::reduce_scatter:
      return scatter_by_owners(level_call);
    case Collective::all_gather:
      return gather_by_owners(level_call);
    default:
      return broadcast_by_owners(level_call);
  }
}

void GpuLevels::all_reduce_by_owners(const LevelCall& level_call) {
  const std::size_t count = level_call.spec.count;
  in_group(level_call, Collective::reduce, {level_call.input, count}, {level_call.output, count});
  if (is_owner()) {
    between_groups(level_call, Collective::all_reduce, {level_call.output, count}, {level_call.output, count});
    divide(level_call, level_call.output, count);
  }
  in_group(level_call, Collective::broadcast, {}, {level_call.output, count});
}

// Reduces to the owner on the root's GPU. If that is not the root, all members there receive the result, in scratch
// memory.
void GpuLevels::reduce_by_owners(const LevelCall& level_call) {
  const std::size_t count = level_call.spec.count;
  const int root_group = member_groups_.group_of(level_call.spec.root);
  const bool is_in_root_group = member_groups_.group_of(me_) == root_group;
  const bool is_handed_on = member_groups_.place_of(level_call.spec.root) != 0;
  std::byte* result = level_call.output;
  if (me_ != level_call.spec.root && (is_owner() || (is_in_root_group && is_handed_on)))
    result = take(first, level_call.bytes(count));
  in_group(level_call, Collective::reduce, {level_call.input, count}, {result, count});
  if (is_owner()) {
    between_groups(level_call, Collective::reduce, {result, count}, {result, count}, root_group);
    if (is_in_root_group) divide(level_call, result, count);
  }
  if (is_in_root_group && is_handed_on) in_group(level_call, Collective::broadcast, {}, {result, count});
}

// Owners reduce everything, exchange the groups' parts, and deal their part out. Blocks are sorted by group first if
// ranks are not.
void GpuLevels::scatter_by_owners(const LevelCall& level_call) {
  const std::size_t count = level_call.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(member_groups_.members());
  const std::size_t ours = count * member_groups_.group(me_).size();
  std::byte* const sum = is_owner() ? take(first, level_call.bytes(all)) : nullptr;
  std::byte* part = nullptr;
  in_group(level_call, Collective::reduce, {level_call.input, all}, {sum, all});
  if (is_owner()) {
    const std::byte* from = sum;
    if (!member_groups_.is_in_order()) {
      std::byte* const by_group = take(second, level_call.bytes(all));
      reorder(member_groups_.by_group(), sum, by_group, level_call.bytes(count), true);
      from = by_group;
    }
    part = take(third, level_call.bytes(ours));
    blocks_between_groups(level_call, Collective::reduce_scatter, {from, all}, {part, ours});
    divide(level_call, part, ours);
  }
  in_group(level_call, Collective::scatter, {part, ours}, {level_call.output, count});
}

// Collects each group's blocks at its owner, exchanges them, and sorts them into the order of the ranks.
void GpuLevels::gather_by_owners(const LevelCall& level_call) {
  const std::size_t count = level_call.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(member_groups_.members());
  const std::size_t ours = count * member_groups_.group(me_).size();
  std::byte* const part = is_owner() ? take(first, level_call.bytes(ours)) : nullptr;
  in_group(level_call, Collective::gather, {level_call.input, count}, {part, ours});
  if (is_owner()) {
    const bool is_in_order = member_groups_.is_in_order();
    std::byte* const by_group = is_in_order ? level_call.output : take(second, level_call.bytes(all));
    blocks_between_groups(level_call, Collective::all_gather, {part, ours}, {by_group, all});
    if (!is_in_order) reorder(member_groups_.by_group(), level_call.output, by_group, level_call.bytes(count), false);
  }
  in_group(level_call, Collective::broadcast, {}, {level_call.output, all});
}

void GpuLevels::broadcast_by_owners(const LevelCall& level_call) {
  const std::size_t count = level_call.spec.count;
  const int root_group = member_groups_.group_of(level_call.spec.root);
  const bool is_in_root_group = member_groups_.group_of(me_) == root_group;
  if (is_in_root_group)
    in_group(level_call, Collective::broadcast, {}, {level_call.output, count},
             member_groups_.place_of(level_call.spec.root));
  if (is_owner()) between_groups(level_call, Collective::broadcast, {}, {level_call.output, count}, root_group);
  if (!is_in_root_group) in_group(level_call, Collective::broadcast, {}, {level_call.output, count});
}

void GpuLevels::in_group(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output,
                         int root) const {
  run_on(sub_communicators_.group.get(), level_call, collective, input, output, root);
}

void GpuLevels::between_groups(const LevelCall& level_call, Collective collective, LevelBuffer input,
                               LevelBuffer output, int root) const {
  run_on(sub_communicators_.between.get(), level_call, collective, input, output, root);
}

void GpuLevels::blocks_between_groups(const LevelCall& level_call, Collective collective, LevelBuffer input,
                                      LevelBuffer output) const {
  if (member_groups_.is_even()) return between_groups(level_call, collective, input, output);
  std::vector<std::size_t> counts;
  for (const auto& group : member_groups_.groups()) counts.push_back(group.size() * level_call.spec.count);
  const bool scatters = collective == Collective::reduce_scatter;
  run_on(sub_communicators_.between.get(), level_call,
         scatters ? Collective::reduce_scatter_v : Collective::all_gather_v, input, output, 0, counts);
}

// Runs a call of a sub-communicator. Only the root gives data to broadcast or scatter, and takes data of a reduce or
// gather.
void GpuLevels::run_on(CommunicatorCore* core, const LevelCall& level_call, Collective collective, LevelBuffer input,
                       LevelBuffer output, int root, std::span<const std::size_t> counts) const {
  if (collective == Collective::broadcast) input = output;
  if (core == nullptr)
    return copy(static_cast<std::byte*>(const_cast<void*>(output.data)), static_cast<const std::byte*>(input.data),
                level_call.bytes(std::min(input.count, output.count)));
  const bool is_root = core->member().rank() == root;
  const bool gives_at_root = collective == Collective::broadcast || collective == Collective::scatter;
  const bool takes_at_root = collective == Collective::reduce || collective == Collective::gather;
  if (gives_at_root && !is_root) input = {};
  if (takes_at_root && !is_root) output = {};
  const bool scatters = collective == Collective::reduce_scatter_v;
  core->run_as_agreed({.collective = collective,
                       .type = level_call.spec.type,
                       .element_bytes = level_call.spec.element_bytes,
                       .reduction = {.op = level_call.spec.op},
                       .order = level_call.spec.order,
                       .root = root,
                       .input = {const_cast<void*>(input.data), input.count},
                       .output = {const_cast<void*>(output.data), output.count},
                       .send_counts = scatters ? counts : std::span<const std::size_t>(),
                       .receive_counts = scatters ? std::span<const std::size_t>() : counts,
                       .origin = level_call.origin},
                      device_);
}

// Returns scratch memory of at least `bytes` bytes. Smaller memory is kept too, because CUDA would wait for the whole
// GPU to free it. The smaller ones together are at most as large as the last one.
std::byte* GpuLevels::take(Scratch which, std::size_t bytes) {
  ScratchBuffers& kept = kept_[which];
  if (bytes > kept.bytes) {
    const std::size_t size = std::max(bytes, 2 * kept.bytes);
    kept.memories.push_back(gpu::allocate(device_, size, 1));
    kept.bytes = size;
  }
  return kept.latest();
}

void GpuLevels::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (to != from) gpu::copy(device_, to, from, bytes);
}

namespace {

// Packs pieces in launches that each take as many as possible.
class Packer {
 public:
  Packer(int device, std::byte* all, bool packs) : device_(device), packs_(packs) { next_.whole = all; }
  // Scales all elements while they are packed.
  void scale(DataType type) {
    next_.in_pieces = next_.in_whole = type;
    next_.scales = true;
  }
  void divide(DataType type, std::int64_t divisor) {
    next_.in_pieces = next_.in_whole = type;
    next_.divisor = divisor;
  }
  void add(std::byte* piece, std::size_t bytes, double factor = 1) {
    if (bytes == 0) return;
    next_.pieces[next_.count] = piece;
    next_.factors[next_.count] = factor;
    next_.begins[next_.count + 1] = next_.begins[next_.count] + bytes;
    if (++next_.count == gpu::most_pieces) launch();
  }
  void launch() {
    if (next_.count == 0) return;
    gpu::backend()->pack(device_, next_, packs_);
    next_.whole += next_.begins[next_.count];
    next_.count = 0;
  }

 private:
  int device_;
  bool packs_;
  gpu::PackArguments next_{};
};

}  // namespace

void GpuLevels::reorder(const std::vector<int>& order, std::byte* in_order, std::byte* in_that, std::size_t bytes,
                        bool packs) const {
  Packer packer(device_, in_that, packs);
  for (const int member : order) packer.add(in_order + static_cast<std::size_t>(member) * bytes, bytes);
  packer.launch();
}

void GpuLevels::pack(std::span<const nccl::NcclCall> steps, std::byte* all, bool packs) const {
  const Spec& spec = steps.front().spec;
  Packer packer(device_, all, packs);
  if (packs && spec.op == ReduceOp::premul_sum) packer.scale(spec.type);
  if (!packs && spec.op == ReduceOp::avg) packer.divide(spec.type, member_groups_.members());
  for (const nccl::NcclCall& step : steps)
    packer.add(step.output, step.spec.count * step.spec.element_bytes, step.factor);
  packer.launch();
}

void GpuLevels::divide(const LevelCall& level_call, std::byte* data, std::size_t count) const {
  if (!level_call.divides) return;
  gpu::CombineArguments all{};
  all.inputs[0] = all.outputs[0] = data;
  all.input_count = all.output_count = 1;
  all.count = count;
  all.divisor = member_groups_.members();
  all.is_aligned = reinterpret_cast<std::uintptr_t>(data) % gpu::vector_bytes == 0;
  gpu::backend()->combine(device_, level_call.spec.type, all);
}

const std::byte* GpuLevels::scale(const nccl::NcclCall& step, std::size_t count) {
  gpu::CombineArguments all{};
  all.inputs[0] = step.input;
  all.outputs[0] = take(scaled, count * step.spec.element_bytes);
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = count;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  gpu::backend()->combine(device_, step.spec.type, all);
  return kept_[scaled].latest();
}

}  // namespace lockstep::detail
