// SPDX-License-Identifier: Apache-2.0
// Handles memory that NCCL knows. All members must give NCCL the same parts of it. If they do not, or NCCL does not
// know the call's memory, data goes through scratch memory in the same stream.
#include "collectives/mix_hash.hpp"
#include "collectives/nccl/nccl_communicator_parts.hpp"

namespace lockstep::nccl {
namespace {

std::size_t output_bytes(const Spec& spec, int rank) {
  std::size_t count = spec.count;
  if (spec.collective == Collective::reduce_scatter_v || spec.collective == Collective::scatter_v)
    count = spec.gives.count(rank);
  if (cuts_output(spec.collective)) count = spec.takes.extent();
  return count * spec.element_bytes;
}

// True if NCCL may work in registered memory for this call, provided that all members give the same parts.
bool takes_same_memory(const Spec& spec, bool knows_both) {
  switch (spec.collective) {
    case Collective::all_gather:
    case Collective::broadcast:
    case Collective::scan:  // NCCL only does an all_gather for these
    case Collective::exscan:
      return true;
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return !is_composed(spec);
    default:
      return is_exchange(spec.collective) && !is_rooted(spec.collective) && knows_both && !spec.in_place;
  }
}

}  // namespace

std::shared_ptr<std::byte> NcclCommunicator::add(std::byte* memory, std::size_t bytes, RegistrationMode how,
                                                 const WaitFunction& wait_function) {
  auto owner = registered_->add(memory, bytes);
  registered_->know(library_.add(member_, memory, bytes, how));
  settle(wait_function);
  return owner;
}

void NcclCommunicator::forget(std::span<const std::uint64_t> numbers, bool frees, const WaitFunction& wait_function) {
  if (numbers.empty()) return;
  while (is_working()) wait_function();
  for (const std::uint64_t number : numbers) {
    if (const auto registration = registered_->take(number)) {
      library_.remove(member_, *registration);
      settle(wait_function);
    }
    if (frees) registered_->free(number);
  }
}

std::uint64_t NcclCommunicator::places_of(std::span<const NcclCall> steps) const {
  std::uint64_t bits = 1;
  for (const NcclCall& step : steps) {
    // In a broadcast, other ranks than the root give only their output.
    const void* const input = step.spec.collective == Collective::broadcast ? step.output : step.input;
    for (const void* const each : {input, static_cast<const void*>(step.output)}) {
      const RegisteredMemory::RegisteredAddress place = registered_->find(each);
      bits = mix_hash(mix_hash(bits, place.number), place.offset);
    }
  }
  return bits;
}

NcclCommunicator::BounceBytes NcclCommunicator::detour_of(const NcclCall& step) const {
  const bool has_factor = step.spec.op == ReduceOp::premul_sum;
  const bool knows_input = registered_->find(step.input).number != 0;
  const bool knows_output = registered_->find(step.output).number != 0;
  const bool may = step.is_same_memory && takes_same_memory(step.spec, knows_input && knows_output);
  BounceBytes detour;
  if (has_factor || (knows_input && !may)) detour.input = round_up(input_bytes(step.spec, rank_));
  // Lockstep's kernels write the output of a scan, so it needs no detour.
  if (knows_output && !may && !is_scan(step.spec)) detour.output = round_up(output_bytes(step.spec, rank_));
  return detour;
}

// Copies the input to scratch memory at `at`, and points the changed call there. Returns the end of the used memory.
std::byte* NcclCommunicator::leave_by(const BounceBytes& detour, const NcclCall& given, NcclCall& changed,
                                      std::byte* at) {
  if (detour.input > 0) {
    if (given.spec.op == ReduceOp::premul_sum)
      scale(given, at);
    else
      copy(at, given.input, input_bytes(given.spec, rank_));
    changed.input = at;
    at += detour.input;
  }
  if (detour.output > 0) {
    changed.output = at;
    at += detour.output;
  }
  return at;
}

void NcclCommunicator::come_back(const NcclCall& given, const NcclCall& changed) {
  if (given.output == changed.output) return;
  const Spec& spec = given.spec;
  if (!cuts_output(spec.collective)) return copy(given.output, changed.output, output_bytes(spec, rank_));
  for (int i = 0; i < spec.takes.parts(); ++i) {
    const std::size_t offset = spec.takes.offset(i) * spec.element_bytes;
    copy(given.output + offset, changed.output + offset, spec.takes.count(i) * spec.element_bytes);
  }
}

}  // namespace lockstep::nccl
