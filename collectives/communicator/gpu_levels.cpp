// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/gpu_levels.hpp"

#include <algorithm>

#include "collectives/communicator/team.hpp"
#include "collectives/gpu/layer.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/gpu/packing.hpp"

namespace lockstep::detail {

GpuLevels::GpuLevels(Arrangement arrangement, Form form, int me, int device, Teams teams)
    : arrangement_(std::move(arrangement)), form_(form), me_(me), device_(device), teams_(std::move(teams)) {}

GpuLevels::~GpuLevels() {
  for (const auto& team : {teams_.near, teams_.across}) {
    if (team) team->close();
  }
}

bool GpuLevels::can_do(const Spec& spec) const {
  switch (spec.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      return spec.op != ReduceOp::user && (spec.order == Order::fast || arrangement_.is_aligned());
    case Collective::all_gather:
    case Collective::broadcast:
      return true;
    default:
      return false;
  }
}

void GpuLevels::refuse(const Error& error) noexcept {
  for (const auto& team : {teams_.near, teams_.across}) {
    if (team) team->refuse_together(error);
  }
}

void GpuLevels::run(std::span<const nccl::Step> steps, Duration limit, const Origin& origin) {
  for (const auto& team : {teams_.near, teams_.across}) {
    if (team) team->set_timeout(limit);
  }
  const gpu::Using mine(device_);
  if (steps.size() == 1) return run_one(steps.front(), origin);
  run_together(steps, origin);
}

void GpuLevels::run_one(const nccl::Step& step, const Origin& origin) {
  if (step.spec.count == 0) return;
  Job job{step.spec, step.input, step.output, step.spec.op == ReduceOp::avg, origin};
  if (step.spec.op == ReduceOp::premul_sum)
    job.input =
        scale(step, step.spec.count *
                        (cuts_input(step.spec.collective) ? static_cast<std::size_t>(arrangement_.members()) : 1));
  if (step.spec.op == ReduceOp::premul_sum || job.divides) job.spec.op = ReduceOp::sum;
  if (form_ == Form::owners)
    by_owners(job);
  else
    by_rails(job);
}

// As one of all that they have. What is packed is multiplied on the way, and what is unpacked is divided.
void GpuLevels::run_together(std::span<const nccl::Step> steps, const Origin& origin) {
  nccl::Step all = steps.front();
  all.spec.count = 0;
  for (const nccl::Step& step : steps) all.spec.count += step.spec.count;
  std::byte* const data = take(whole, all.spec.count * all.spec.element_bytes);
  all.input = all.output = data;
  all.spec.in_place = true;
  if (all.spec.op == ReduceOp::avg || all.spec.op == ReduceOp::premul_sum) all.spec.op = ReduceOp::sum;
  pack(steps, data, true);
  run_one(all, origin);
  pack(steps, data, false);
}

void GpuLevels::by_owners(const Job& job) {
  switch (job.spec.collective) {
    case Collective::all_reduce:
      return all_reduce_by_owners(job);
    case Collective::reduce:
      return reduce_by_owners(job);
    case Collective::reduce_scatter:
      return scatter_by_owners(job);
    case Collective::all_gather:
      return gather_by_owners(job);
    default:
      return broadcast_by_owners(job);
  }
}

void GpuLevels::by_rails(const Job& job) {
  switch (job.spec.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduce_by_rails(job);
    case Collective::reduce_scatter:
      return scatter_by_rails(job);
    case Collective::all_gather:
      return gather_by_rails(job);
    default:
      return broadcast_by_rails(job);
  }
}

void GpuLevels::all_reduce_by_owners(const Job& job) {
  const std::size_t count = job.spec.count;
  near(job, Collective::reduce, {job.input, count}, {job.output, count});
  if (is_owner()) {
    across(job, Collective::all_reduce, {job.output, count}, {job.output, count});
    divide(job, job.output, count);
  }
  near(job, Collective::broadcast, {}, {job.output, count});
}

// The owner on the root's GPU gets it; where that is not the root, all there hear it, in memory that is not asked for.
void GpuLevels::reduce_by_owners(const Job& job) {
  const std::size_t count = job.spec.count;
  const int root_group = arrangement_.group_of(job.spec.root);
  const bool is_near_root = arrangement_.group_of(me_) == root_group;
  const bool is_handed_on = arrangement_.place_of(job.spec.root) != 0;
  std::byte* result = job.output;
  if (me_ != job.spec.root && (is_owner() || (is_near_root && is_handed_on))) result = take(first, job.bytes(count));
  near(job, Collective::reduce, {job.input, count}, {result, count});
  if (is_owner()) {
    across(job, Collective::reduce, {result, count}, {result, count}, root_group);
    if (is_near_root) divide(job, result, count);
  }
  if (is_near_root && is_handed_on) near(job, Collective::broadcast, {}, {result, count});
}

void GpuLevels::scatter_by_owners(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(arrangement_.members());
  const std::size_t ours = count * arrangement_.group(me_).size();
  std::byte* const sum = is_owner() ? take(first, job.bytes(all)) : nullptr;
  std::byte* part = nullptr;
  near(job, Collective::reduce, {job.input, all}, {sum, all});
  if (is_owner()) {
    const std::byte* from = sum;
    if (!arrangement_.is_in_order()) {
      std::byte* const by_group = take(second, job.bytes(all));
      reorder(arrangement_.by_group(), sum, by_group, job.bytes(count), true);
      from = by_group;
    }
    part = take(third, job.bytes(ours));
    across_blocks(job, Collective::reduce_scatter, {from, all}, {part, ours});
    divide(job, part, ours);
  }
  near(job, Collective::scatter, {part, ours}, {job.output, count});
}

void GpuLevels::gather_by_owners(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(arrangement_.members());
  const std::size_t ours = count * arrangement_.group(me_).size();
  std::byte* const part = is_owner() ? take(first, job.bytes(ours)) : nullptr;
  near(job, Collective::gather, {job.input, count}, {part, ours});
  if (is_owner()) {
    const bool is_in_order = arrangement_.is_in_order();
    std::byte* const by_group = is_in_order ? job.output : take(second, job.bytes(all));
    across_blocks(job, Collective::all_gather, {part, ours}, {by_group, all});
    if (!is_in_order) reorder(arrangement_.by_group(), job.output, by_group, job.bytes(count), false);
  }
  near(job, Collective::broadcast, {}, {job.output, all});
}

void GpuLevels::broadcast_by_owners(const Job& job) {
  const std::size_t count = job.spec.count;
  const int root_group = arrangement_.group_of(job.spec.root);
  const bool is_near_root = arrangement_.group_of(me_) == root_group;
  if (is_near_root) near(job, Collective::broadcast, {}, {job.output, count}, arrangement_.place_of(job.spec.root));
  if (is_owner()) across(job, Collective::broadcast, {}, {job.output, count}, root_group);
  if (!is_near_root) near(job, Collective::broadcast, {}, {job.output, count});
}

// Each has as much on its rail, the last one perhaps something that nobody needs.
void GpuLevels::reduce_by_rails(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t places = arrangement_.groups().front().size();
  const std::size_t each = (count + places - 1) / places;
  const bool is_whole = each * places == count;
  const bool has_root = job.spec.collective == Collective::reduce;
  const int root_group = arrangement_.group_of(job.spec.root);
  const bool has_result = !has_root || arrangement_.group_of(me_) == root_group;
  const bool takes = !has_root || me_ == job.spec.root;
  const std::byte* input = job.input;
  std::byte* padded = nullptr;
  if (!is_whole) {
    padded = take(first, job.bytes(each * places));
    copy(padded, job.input, job.bytes(count));
    input = padded;
  }
  std::byte* const part = take(second, job.bytes(each));
  near(job, Collective::reduce_scatter, {input, each * places}, {part, each});
  across(job, has_root ? Collective::reduce : Collective::all_reduce, {part, each}, {part, each}, root_group);
  if (!has_result) return;
  divide(job, part, each);
  std::byte* const result = is_whole ? job.output : padded;
  near(job, has_root ? Collective::gather : Collective::all_gather, {part, each}, {result, each * places},
       has_root ? arrangement_.place_of(job.spec.root) : 0);
  if (!is_whole && takes) copy(job.output, padded, job.bytes(count));
}

void GpuLevels::scatter_by_rails(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(arrangement_.members());
  const std::size_t rail = count * arrangement_.groups().size();
  std::byte* const by_place = take(first, job.bytes(all));
  std::byte* const part = take(second, job.bytes(rail));
  reorder(arrangement_.by_place(), const_cast<std::byte*>(job.input), by_place, job.bytes(count), true);
  near(job, Collective::reduce_scatter, {by_place, all}, {part, rail});
  across(job, Collective::reduce_scatter, {part, rail}, {job.output, count});
  divide(job, job.output, count);
}

void GpuLevels::gather_by_rails(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t all = count * static_cast<std::size_t>(arrangement_.members());
  const std::size_t rail = count * arrangement_.groups().size();
  std::byte* const part = take(first, job.bytes(rail));
  std::byte* const by_place = take(second, job.bytes(all));
  across(job, Collective::all_gather, {job.input, count}, {part, rail});
  near(job, Collective::all_gather, {part, rail}, {by_place, all});
  reorder(arrangement_.by_place(), job.output, by_place, job.bytes(count), false);
}

void GpuLevels::broadcast_by_rails(const Job& job) {
  const std::size_t count = job.spec.count;
  const std::size_t places = arrangement_.groups().front().size();
  const std::size_t each = (count + places - 1) / places;
  const bool is_whole = each * places == count;
  const int root_group = arrangement_.group_of(job.spec.root);
  std::byte* const all = is_whole ? job.output : take(first, job.bytes(each * places));
  std::byte* const part = take(second, job.bytes(each));
  if (!is_whole && me_ == job.spec.root) copy(all, job.output, job.bytes(count));
  if (arrangement_.group_of(me_) == root_group)
    near(job, Collective::scatter, {all, each * places}, {part, each}, arrangement_.place_of(job.spec.root));
  across(job, Collective::broadcast, {}, {part, each}, root_group);
  near(job, Collective::all_gather, {part, each}, {all, each * places});
  if (!is_whole) copy(job.output, all, job.bytes(count));
}

void GpuLevels::near(const Job& job, Collective collective, Side input, Side output, int root) const {
  go(teams_.near.get(), job, collective, input, output, root);
}

void GpuLevels::across(const Job& job, Collective collective, Side input, Side output, int root) const {
  go(teams_.across.get(), job, collective, input, output, root);
}

void GpuLevels::across_blocks(const Job& job, Collective collective, Side input, Side output) const {
  if (arrangement_.is_even()) return across(job, collective, input, output);
  std::vector<std::size_t> counts;
  for (const auto& group : arrangement_.groups()) counts.push_back(group.size() * job.spec.count);
  const bool scatters = collective == Collective::reduce_scatter;
  go(teams_.across.get(), job, scatters ? Collective::reduce_scatter_v : Collective::all_gather_v, input, output, 0,
     counts);
}

// Only the root gives what is broadcast or scattered, and takes what is reduced or gathered.
void GpuLevels::go(Team* team, const Job& job, Collective collective, Side input, Side output, int root,
                   std::span<const std::size_t> counts) const {
  if (collective == Collective::broadcast) input = output;
  if (team == nullptr)
    return copy(static_cast<std::byte*>(const_cast<void*>(output.data)), static_cast<const std::byte*>(input.data),
                job.bytes(std::min(input.count, output.count)));
  const bool is_root = team->rank() == root;
  const bool gives_at_root = collective == Collective::broadcast || collective == Collective::scatter;
  const bool takes_at_root = collective == Collective::reduce || collective == Collective::gather;
  if (gives_at_root && !is_root) input = {};
  if (takes_at_root && !is_root) output = {};
  const bool scatters = collective == Collective::reduce_scatter_v;
  team->run_as_agreed({.collective = collective,
                       .type = job.spec.type,
                       .element_bytes = job.spec.element_bytes,
                       .reduction = {.op = job.spec.op},
                       .order = job.spec.order,
                       .root = root,
                       .input = {const_cast<void*>(input.data), input.count},
                       .output = {const_cast<void*>(output.data), output.count},
                       .gives = scatters ? counts : std::span<const std::size_t>(),
                       .takes = scatters ? std::span<const std::size_t>() : counts,
                       .origin = job.origin},
                      device_);
}

// What was too short stays as well, together as much as the last one: CUDA would wait for the whole GPU to free it.
std::byte* GpuLevels::take(Scratch which, std::size_t bytes) {
  Kept& kept = kept_[which];
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

// As many at once as a launch takes.
class Packer {
 public:
  Packer(int device, std::byte* all, bool packs) : device_(device), packs_(packs) { next_.whole = all; }
  // All elements, on their way.
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
    gpu::layer()->pack(device_, next_, packs_);
    next_.whole += next_.begins[next_.count];
    next_.count = 0;
  }

 private:
  int device_;
  bool packs_;
  gpu::Packing next_{};
};

}  // namespace

void GpuLevels::reorder(const std::vector<int>& order, std::byte* in_order, std::byte* in_that, std::size_t bytes,
                        bool packs) const {
  Packer packer(device_, in_that, packs);
  for (const int member : order) packer.add(in_order + static_cast<std::size_t>(member) * bytes, bytes);
  packer.launch();
}

void GpuLevels::pack(std::span<const nccl::Step> steps, std::byte* all, bool packs) const {
  const Spec& spec = steps.front().spec;
  Packer packer(device_, all, packs);
  if (packs && spec.op == ReduceOp::premul_sum) packer.scale(spec.type);
  if (!packs && spec.op == ReduceOp::avg) packer.divide(spec.type, arrangement_.members());
  for (const nccl::Step& step : steps) packer.add(step.output, step.spec.count * step.spec.element_bytes, step.factor);
  packer.launch();
}

void GpuLevels::divide(const Job& job, std::byte* data, std::size_t count) const {
  if (!job.divides) return;
  gpu::Combining all{};
  all.inputs[0] = all.outputs[0] = data;
  all.input_count = all.output_count = 1;
  all.count = count;
  all.divisor = arrangement_.members();
  all.is_aligned = reinterpret_cast<std::uintptr_t>(data) % gpu::vector_bytes == 0;
  gpu::layer()->combine(device_, job.spec.type, all);
}

const std::byte* GpuLevels::scale(const nccl::Step& step, std::size_t count) {
  gpu::Combining all{};
  all.inputs[0] = step.input;
  all.outputs[0] = take(scaled, count * step.spec.element_bytes);
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = count;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  gpu::layer()->combine(device_, step.spec.type, all);
  return kept_[scaled].latest();
}

}  // namespace lockstep::detail
