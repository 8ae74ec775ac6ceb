// SPDX-License-Identifier: Apache-2.0
// Composes reductions that NCCL lacks: messages bring every rank all parts of its block, and kernels combine them.
#include <algorithm>
#include <bit>

#include "collectives/gpu/combining.hpp"
#include "collectives/nccl/nccl_communicator_parts.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::nccl {

std::size_t NcclCommunicator::ReductionBlocks::offset(int block) const {
  if (each > 0) return std::min(static_cast<std::size_t>(block) * each, step->spec.count);
  const lockstep::Blocks& cut = step->spec.gives;
  return block == cut.parts() ? cut.total() : cut.offset(block);
}

// Cuts blocks at vector boundaries; only the last one may be shorter.
NcclCommunicator::ReductionBlocks NcclCommunicator::blocks_of(const NcclCall& step) const {
  if (cuts_input(step.spec.collective)) return {&step, 0};
  const auto members = static_cast<std::size_t>(size_);
  const std::size_t unit = std::max<std::size_t>(alignment / step.spec.element_bytes, 1);
  const std::size_t each = (step.spec.count + members - 1) / members;
  return {&step, std::max(unit, (each + unit - 1) / unit * unit)};
}

std::size_t NcclCommunicator::slot_bytes(const ReductionBlocks& blocks) const {
  return round_up(blocks.count(rank_) * blocks.step->spec.element_bytes);
}

// Brings every rank all parts of its block, in one slot per rank. The rank reads its own part in place.
void NcclCommunicator::exchange_parts(const ReductionBlocks& blocks, std::byte* scratch) {
  const std::size_t element = blocks.step->spec.element_bytes;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const std::size_t theirs = blocks.count(i) * element;
    const std::size_t mine = blocks.count(rank_) * element;
    if (theirs > 0) send(blocks.step->input + blocks.offset(i) * element, theirs, i);
    if (mine > 0) receive(scratch + static_cast<std::size_t>(i) * slot_bytes(blocks), mine, i);
  }
}

std::byte* NcclCommunicator::result_of(const ReductionBlocks& blocks, std::byte* scratch) const {
  const Spec& spec = blocks.step->spec;
  if (blocks.each == 0) return blocks.step->output;
  if (spec.collective == Collective::reduce && spec.root != rank_)
    return scratch + static_cast<std::size_t>(rank_) * slot_bytes(blocks);
  return blocks.step->output + blocks.offset(rank_) * spec.element_bytes;
}

void NcclCommunicator::combine_parts(const ReductionBlocks& blocks, std::byte* scratch) {
  const Spec& spec = blocks.step->spec;
  if (spec.op == ReduceOp::user) {
    std::vector<CombinePart> parts;
    for (int i = 0; i < size_; ++i) {
      std::byte* const slot = scratch + static_cast<std::size_t>(i) * slot_bytes(blocks);
      parts.push_back({i == rank_ ? blocks.step->input + blocks.offset(i) * spec.element_bytes : slot, slot});
    }
    return combine_by_own(*blocks.step, parts, blocks.count(rank_), result_of(blocks, scratch));
  }
  gpu::CombineArguments all{};
  all.input_count = size_;
  all.output_count = 1;
  all.count = blocks.count(rank_);
  all.op = spec.op == ReduceOp::avg ? ReduceOp::sum : spec.op;
  all.divisor = spec.op == ReduceOp::avg ? size_ : 0;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0) return;
  for (int i = 0; i < size_; ++i) {
    all.inputs[i] = i == rank_ ? blocks.step->input + blocks.offset(i) * spec.element_bytes
                               : scratch + static_cast<std::size_t>(i) * slot_bytes(blocks);
  }
  all.outputs[0] = result_of(blocks, scratch);
  all.is_aligned =
      (reinterpret_cast<std::uintptr_t>(all.inputs[rank_]) | reinterpret_cast<std::uintptr_t>(all.outputs[0])) %
          gpu::vector_bytes ==
      0;
  gpu::backend()->begin_combine(device_, spec.type, all, now_);
}

void NcclCommunicator::scale(const NcclCall& step, std::byte* to) {
  gpu::CombineArguments all{};
  all.inputs[0] = step.input;
  all.outputs[0] = to;
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = input_bytes(step.spec, rank_) / step.spec.element_bytes;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  if (all.count > 0) gpu::backend()->begin_combine(device_, step.spec.type, all, now_);
}

// Combines the parts of the ranks up to this one for scan, or before this one for exscan.
void NcclCommunicator::combine_before(const NcclCall& step, std::byte* scratch) {
  const Spec& spec = step.spec;
  if (spec.op == ReduceOp::user) {
    std::vector<CombinePart> parts;
    for (int i = 0; i < rank_ + (spec.collective == Collective::scan ? 1 : 0); ++i) {
      std::byte* const whole = scratch + static_cast<std::size_t>(i) * spec.count * spec.element_bytes;
      parts.push_back({whole, whole});
    }
    return combine_by_own(step, parts, spec.count, step.output);
  }
  gpu::CombineArguments all{};
  all.input_count = rank_ + (spec.collective == Collective::scan ? 1 : 0);
  all.output_count = 1;
  all.count = spec.count;
  all.op = spec.op;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0 || all.input_count == 0) return;
  const std::size_t bytes = spec.count * spec.element_bytes;
  for (int i = 0; i < all.input_count; ++i) all.inputs[i] = scratch + static_cast<std::size_t>(i) * bytes;
  all.outputs[0] = step.output;
  all.is_aligned = (bytes | reinterpret_cast<std::uintptr_t>(step.output)) % gpu::vector_bytes == 0;
  gpu::backend()->begin_combine(device_, spec.type, all, now_);
}

// Combines by the balanced tree in every order. Ranks stay in order, and the reproducible order gives the host's bits.
void NcclCommunicator::combine_by_own(const NcclCall& step, std::span<const CombinePart> parts, std::size_t count,
                                      std::byte* result) {
  if (count == 0 || parts.empty()) return;
  if (parts.size() == 1) return copy(result, parts.front().at, count * step.spec.element_bytes);
  const auto both = [&](std::span<const CombinePart> half) {
    if (half.size() > 1) combine_by_own(step, half, count, half.front().room);
    return half.size() > 1 ? half.front().room : half.front().at;
  };
  const std::size_t first = std::bit_floor(parts.size() - 1);
  const std::byte* const left = both(parts.first(first));
  const std::byte* const right = both(parts.subspan(first));
  try {
    gpu::backend()->begin_own(device_, [&] { step.own.put(step.own.state.data(), left, right, result, count, now_); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    throw Error(Code::device, text("a function of the program for GPUs threw: ", other.what()));
  } catch (...) {
    throw Error(Code::device, "a function of the program for GPUs threw an object that is not a std::exception");
  }
}

void NcclCommunicator::hand_out(const ReductionBlocks& blocks, std::byte* scratch) {
  if (blocks.each == 0 || is_scan(blocks.step->spec)) return;
  const Spec& spec = blocks.step->spec;
  const bool for_all = spec.collective == Collective::all_reduce;
  const std::size_t mine = blocks.count(rank_) * spec.element_bytes;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const std::size_t theirs = blocks.count(i) * spec.element_bytes;
    if (mine > 0 && (for_all || i == spec.root)) send(result_of(blocks, scratch), mine, i);
    if (theirs > 0 && (for_all || rank_ == spec.root))
      receive(blocks.step->output + blocks.offset(i) * spec.element_bytes, theirs, i);
  }
}

}  // namespace lockstep::nccl
