// SPDX-License-Identifier: Apache-2.0
// Exchanges the parts, launches the kernels, and hands out results.
#include "collectives/nccl/composed_reduction.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/gpu/combining.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::nccl {

// Cuts blocks at vector boundaries; only the last one may be shorter.
ComposedReduction::ComposedReduction(const NcclEndpoint& endpoint, const NcclCall& call, std::byte* scratch)
    : endpoint_(endpoint), call_(call), scratch_(scratch) {
  if (cuts_input(call.spec.collective)) return;
  const auto members = static_cast<std::size_t>(endpoint.size);
  const std::size_t unit = std::max<std::size_t>(alignment / call.spec.element_bytes, 1);
  const std::size_t each = (call.spec.count + members - 1) / members;
  each_ = std::max(unit, (each + unit - 1) / unit * unit);
}

std::size_t ComposedReduction::scratch_bytes(const NcclEndpoint& endpoint, const NcclCall& call) {
  const auto members = static_cast<std::size_t>(endpoint.size);
  if (is_scan(call.spec)) return round_up(call.spec.count * call.spec.element_bytes * members);
  return ComposedReduction(endpoint, call, nullptr).slot_bytes() * members;
}

std::size_t ComposedReduction::offset(int block) const {
  if (each_ > 0) return std::min(static_cast<std::size_t>(block) * each_, call_.spec.count);
  const lockstep::Blocks& cut = call_.spec.input_blocks;
  return block == cut.parts() ? cut.total() : cut.offset(block);
}

std::size_t ComposedReduction::slot_bytes() const { return round_up(count(endpoint_.rank) * call_.spec.element_bytes); }

void ComposedReduction::exchange() const {
  const std::size_t element = call_.spec.element_bytes;
  if (is_scan(call_.spec))
    return endpoint_.library.all_gather(endpoint_.member, call_.input, scratch_, call_.spec.count * element,
                                        endpoint_.stream);
  for (int i = 0; i < endpoint_.size; ++i) {
    if (i == endpoint_.rank) continue;
    const std::size_t theirs = count(i) * element;
    const std::size_t mine = count(endpoint_.rank) * element;
    if (theirs > 0) endpoint_.send(call_.input + offset(i) * element, theirs, i);
    if (mine > 0) endpoint_.receive(slot(i), mine, i);
  }
}

std::byte* ComposedReduction::result() const {
  const Spec& spec = call_.spec;
  if (each_ == 0) return call_.output;
  if (spec.collective == Collective::reduce && spec.root != endpoint_.rank) return slot(endpoint_.rank);
  return call_.output + offset(endpoint_.rank) * spec.element_bytes;
}

void ComposedReduction::combine() const {
  const Spec& spec = call_.spec;
  if (is_scan(spec)) return combine_before();
  const int rank = endpoint_.rank;
  const std::byte* const own = call_.input + offset(rank) * spec.element_bytes;
  if (spec.op == ReduceOp::user) {
    std::vector<CombinePart> parts;
    for (int i = 0; i < endpoint_.size; ++i) parts.push_back({i == rank ? own : slot(i), slot(i)});
    return combine_by_own(parts, count(rank), result());
  }
  gpu::CombineArguments all{};
  all.input_count = endpoint_.size;
  all.output_count = 1;
  all.count = count(rank);
  all.op = spec.op == ReduceOp::avg ? ReduceOp::sum : spec.op;
  all.divisor = spec.op == ReduceOp::avg ? endpoint_.size : 0;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0) return;
  for (int i = 0; i < endpoint_.size; ++i) all.inputs[i] = i == rank ? own : slot(i);
  all.outputs[0] = result();
  all.is_aligned =
      (reinterpret_cast<std::uintptr_t>(own) | reinterpret_cast<std::uintptr_t>(all.outputs[0])) % gpu::vector_bytes ==
      0;
  gpu::backend()->begin_combine(endpoint_.device, spec.type, all, endpoint_.stream);
}

// Combines the parts of the ranks up to this one for scan, or before this one for exscan.
void ComposedReduction::combine_before() const {
  const Spec& spec = call_.spec;
  const int ranks = endpoint_.rank + (spec.collective == Collective::scan ? 1 : 0);
  const std::size_t bytes = spec.count * spec.element_bytes;
  const auto whole = [&](int rank) { return scratch_ + static_cast<std::size_t>(rank) * bytes; };
  if (spec.op == ReduceOp::user) {
    std::vector<CombinePart> parts;
    for (int i = 0; i < ranks; ++i) parts.push_back({whole(i), whole(i)});
    return combine_by_own(parts, spec.count, call_.output);
  }
  gpu::CombineArguments all{};
  all.input_count = ranks;
  all.output_count = 1;
  all.count = spec.count;
  all.op = spec.op;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0 || all.input_count == 0) return;
  for (int i = 0; i < ranks; ++i) all.inputs[i] = whole(i);
  all.outputs[0] = call_.output;
  all.is_aligned = (bytes | reinterpret_cast<std::uintptr_t>(call_.output)) % gpu::vector_bytes == 0;
  gpu::backend()->begin_combine(endpoint_.device, spec.type, all, endpoint_.stream);
}

// Combines by the balanced tree in every order. Ranks stay in order, and the reproducible order gives the host's bits.
void ComposedReduction::combine_by_own(std::span<const CombinePart> parts, std::size_t count, std::byte* result) const {
  if (count == 0 || parts.empty()) return;
  if (parts.size() == 1) return endpoint_.copy(result, parts.front().at, count * call_.spec.element_bytes);
  const auto both = [&](std::span<const CombinePart> half) {
    if (half.size() > 1) combine_by_own(half, count, half.front().room);
    return half.size() > 1 ? half.front().room : half.front().at;
  };
  const std::size_t first = std::bit_floor(parts.size() - 1);
  const std::byte* const left = both(parts.first(first));
  const std::byte* const right = both(parts.subspan(first));
  try {
    gpu::backend()->begin_own(
        endpoint_.device, [&] { call_.own.put(call_.own.state.data(), left, right, result, count, endpoint_.stream); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    throw Error(Code::device, text("a function of the program for GPUs threw: ", other.what()));
  } catch (...) {
    throw Error(Code::device, "a function of the program for GPUs threw an object that is not a std::exception");
  }
}

bool ComposedReduction::hands_out() const { return each_ > 0 && !is_scan(call_.spec); }

void ComposedReduction::hand_out() const {
  if (!hands_out()) return;
  const Spec& spec = call_.spec;
  const bool for_all = spec.collective == Collective::all_reduce;
  const std::size_t mine = count(endpoint_.rank) * spec.element_bytes;
  for (int i = 0; i < endpoint_.size; ++i) {
    if (i == endpoint_.rank) continue;
    const std::size_t theirs = count(i) * spec.element_bytes;
    if (mine > 0 && (for_all || i == spec.root)) endpoint_.send(result(), mine, i);
    if (theirs > 0 && (for_all || endpoint_.rank == spec.root))
      endpoint_.receive(call_.output + offset(i) * spec.element_bytes, theirs, i);
  }
}

}  // namespace lockstep::nccl
