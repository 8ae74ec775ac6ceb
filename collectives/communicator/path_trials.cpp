// SPDX-License-Identifier: Apache-2.0
// Measures two paths by turns, and lets the members agree on the faster one.
#include "collectives/communicator/path_trials.hpp"

#include <algorithm>
#include <bit>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/planner.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

std::size_t all_bytes_of(const Spec& spec) {
  const bool has_blocks = spec.collective == Collective::reduce_scatter || spec.collective == Collective::all_gather;
  const auto parts = static_cast<std::size_t>(std::max(spec.gives.parts(), spec.takes.parts()));
  return spec.count * spec.element_bytes * (has_blocks ? parts : 1);
}

}  // namespace

// A call in a stream always uses NCCL, because the levels make the host wait.
Trial* PathTrials::trial_of(const BoundCall& bound_call) {
  if (!arrangement_.spans_nodes() || bound_call.stream) return nullptr;
  GpuCall& call = gpu_call_of(*bound_call.gpus);
  if (arrangement_.levels() == nullptr) arrangement_.add_levels();
  if (!arrangement_.has_levels_for(call)) return nullptr;
  std::size_t bytes = 0;
  for (const nccl::NcclCall& step : call.steps) bytes += all_bytes_of(step.spec);
  const Spec& spec = call.steps.front().spec;
  Trial& trial = trials_[{spec.collective, spec.type, spec.op, spec.order, std::bit_width(bytes)}];
  if (!trial.is_over()) return &trial;
  if (trial.way() == 1) call.choose(GpuCall::Path::levels);
  return nullptr;
}

Duration PathTrials::begin(const Origin& origin) {
  largest_of({}, origin);
  return members_.engine().world().now();
}

void PathTrials::end(Trial& trial, Duration begun, const BoundCall& bound_call) {
  if (!trial.took(members_.engine().world().now() - begun)) return;
  trial.conclude(largest_of(trial.nanoseconds(), bound_call.call.origin));
  const Spec& spec = gpu_call_of(*bound_call.gpus).steps.front().spec;
  members_.exchange().log().info(
      text("on \"", members_.options().name, "\", ", to_text(signature_of(spec)), " goes ",
           trial.way() == 1 ? "by NCCL in the nodes, and among them by the host" : "by NCCL alone",
           ", which was the faster way"));
}

void PathTrials::keep_memory() { keep_for_ever(times_); }

// Returns the largest value of all members for each entry. It returns when all members have come.
std::span<const std::uint64_t> PathTrials::largest_of(const std::vector<std::uint64_t>& mine, const Origin& origin) {
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
