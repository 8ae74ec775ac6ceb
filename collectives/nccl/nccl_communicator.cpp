// SPDX-License-Identifier: Apache-2.0
// Starts calls by NCCL in a stream, and ends the communicator in order or by an abort.
#include "collectives/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/composed_reduction.hpp"
#include "collectives/nccl/plain_call.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::nccl {
namespace {

// Returns the specification of a call with its data in other memory: not in place, and multiplied already.
Spec apart(const Spec& spec) {
  Spec now = spec;
  if (spec.op == ReduceOp::premul_sum) now.op = ReduceOp::sum;
  now.in_place = false;
  return now;
}

// True if this member's factor is applied to the input, in scratch memory, before NCCL adds.
bool is_scaled(const NcclCall& step) { return step.spec.op == ReduceOp::premul_sum; }

std::size_t scaled_bytes(const NcclEndpoint& endpoint, const NcclCall& step) {
  return is_scaled(step) ? round_up(input_bytes(step.spec, endpoint.rank)) : 0;
}

void scale(const NcclEndpoint& endpoint, const NcclCall& step, std::byte* to) {
  gpu::CombineArguments all{};
  all.inputs[0] = step.input;
  all.outputs[0] = to;
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = input_bytes(step.spec, endpoint.rank) / step.spec.element_bytes;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  if (all.count > 0) gpu::backend()->begin_combine(endpoint.device, step.spec.type, all, endpoint.stream);
}

// Waits for Lockstep's own kernels and copies behind NCCL's part. A GPU that has failed does nothing more.
void wait_for_end(gpu::StreamMark& last) noexcept {
  try {
    while (!last.is_reached()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  } catch (const Error&) {
    return;
  }
}

}  // namespace

bool can_do(const Spec& spec, int members) {
  if (!lockstep::reduces(spec.collective)) {
    return is_sent_by_messages(spec.collective) || spec.collective == Collective::all_gather ||
           spec.collective == Collective::broadcast;
  }
  if (spec.op == ReduceOp::user) return true;  // combines two at a time, so any number of members will do
  return members <= gpu::most_parts || is_reduced_by_nccl(spec.op == ReduceOp::premul_sum ? apart(spec) : spec);
}

NcclCommunicator::NcclCommunicator(NcclInterface& library, const NcclId& id, int size, int rank, int device,
                                   const WaitFunction& wait_function)
    : library_(library), size_(size), rank_(rank), device_(device) {
  stream_ = gpu::backend()->make_stream(device);
  try {
    member_ = library_.join(id, size, rank, device);
  } catch (...) {
    gpu::backend()->end_stream(device_, stream_);
    throw;
  }
  try {
    settle(wait_function);
  } catch (...) {
    library_.leave(member_);
    gpu::backend()->end_stream(device_, stream_);
    throw;
  }
}

// An abort may wait forever: for earlier work of the user in the stream, or for a graph that is kept. So another thread
// does it, and the destructor waits for at most a second.
NcclCommunicator::~NcclCommunicator() {
  auto leave = [library = &library_, member = member_, backend = gpu::backend(), device = device_, stream = stream_,
                last = last_, scratches = std::move(scratches_)]() mutable {
    library->leave(member);
    if (last) wait_for_end(*last);
    backend->end_stream(device, stream);
    scratches.clear();
  };
  if (has_ended_) {
    leave();
    return;
  }
  constexpr auto timeout = std::chrono::seconds(1);
  std::promise<void> left;
  const std::future<void> done = left.get_future();
  std::thread([work = std::move(leave), all = std::move(left)]() mutable {
    work();
    all.set_value();
  }).detach();
  done.wait_for(timeout);
}

void NcclCommunicator::settle(const WaitFunction& wait_function) {
  while (library_.is_busy(member_)) wait_function();
}

void NcclCommunicator::check() { library_.is_busy(member_); }

void NcclCommunicator::end(const WaitFunction& wait_function) {
  library_.finish(member_);
  settle(wait_function);
  has_ended_ = true;
}

gpu::Stream NcclCommunicator::stream_after(std::span<const std::shared_ptr<gpu::StreamMark>> marks) {
  for (const auto& mark : marks) gpu::backend()->wait_for(device_, stream_, *mark);
  if (marks.empty()) gpu::backend()->come_after_default(device_, stream_);
  return stream_;
}

bool NcclCommunicator::is_working() const { return last_ && !last_->is_reached(); }

template <class F>
void NcclCommunicator::group(const F& f, const WaitFunction& wait_function) {
  library_.begin_group();
  try {
    f();
  } catch (...) {
    try {
      library_.end_group(member_);
    } catch (const Error&) {
      // The first error says more.
    }
    throw;
  }
  library_.end_group(member_);
  settle(wait_function);
}

void NcclCommunicator::refuse_captured(const Spec& spec) {
  throw Error(
      Code::usage,
      text("a stream under capture was given to ", to_text(signature_of(spec)),
           ", which works in scratch memory that other calls use too"),
      "capture only calls that NCCL does alone (sum, prod, avg of floats, min and max of integers; all_to_all of two "
      "buffers), or call it outside of the graph");
}

std::shared_ptr<gpu::StreamMark> NcclCommunicator::begin(std::span<const NcclCall> given, gpu::Stream stream,
                                                         const WaitFunction& wait_function) {
  const NcclEndpoint endpoint{library_, member_, size_, rank_, device_, stream};
  std::span<const NcclCall> steps = given;
  std::vector<NcclCall> changed;
  if (std::ranges::any_of(given, is_scaled)) {
    changed.assign(given.begin(), given.end());
    for (NcclCall& step : changed) {
      if (is_scaled(step)) step.spec = apart(step.spec);
    }
    steps = changed;
  }
  std::size_t bytes = 0;
  for (const NcclCall& step : steps) bytes += scratch_bytes(endpoint, step);
  const std::size_t scaled_at = bytes;
  for (const NcclCall& step : given) bytes += scaled_bytes(endpoint, step);
  const bool is_captured = gpu::backend()->is_captured(stream);
  if (is_captured && bytes > 0) refuse_captured(steps.front().spec);
  if (!is_captured && last_) gpu::backend()->wait_for(device_, stream, *last_);
  std::byte* const scratch = scratch_of(bytes);
  try {
    std::byte* next = scratch + scaled_at;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      if (!is_scaled(given[i])) continue;
      scale(endpoint, given[i], next);
      changed[i].input = next;
      next += scaled_bytes(endpoint, given[i]);
    }
    run(endpoint, steps, scratch, wait_function);
  } catch (...) {
    if (!is_captured) keep_end_of(stream);
    throw;
  }
  if (is_captured) return nullptr;
  last_ = gpu::backend()->mark(device_, stream);
  return last_;
}

// Marks the end of a failed call, part of which may be in the stream. The destructor waits for it before it frees
// memory.
void NcclCommunicator::keep_end_of(gpu::Stream stream) noexcept {
  try {
    last_ = gpu::backend()->mark(device_, stream);
  } catch (const Error&) {
    return;  // the GPU has failed, and the first error says more
  }
}

void NcclCommunicator::run(const NcclEndpoint& endpoint, std::span<const NcclCall> steps, std::byte* scratch,
                           const WaitFunction& wait_function) {
  std::vector<ComposedReduction> composed;
  composed.reserve(steps.size());
  const auto begin_all = [&] {
    for (const NcclCall& step : steps) {
      if (is_composed(step.spec))
        composed.emplace_back(endpoint, step, scratch).exchange();
      else
        begin_plain(endpoint, step, scratch);
      scratch += scratch_bytes(endpoint, step);
    }
  };
  group(begin_all, wait_function);
  for (const ComposedReduction& each : composed) each.combine();
  if (std::ranges::none_of(composed, &ComposedReduction::hands_out)) return;
  const auto hand_out_all = [&] {
    for (const ComposedReduction& each : composed) each.hand_out();
  };
  group(hand_out_all, wait_function);
}

std::byte* NcclCommunicator::scratch_of(std::size_t bytes) {
  if (bytes > scratch_size_) {
    const std::size_t size = std::max(bytes, 2 * scratch_size_);
    scratches_.push_back(gpu::allocate(device_, size, 1));
    scratch_size_ = size;
  }
  return scratches_.empty() ? nullptr : scratches_.back().get();
}

}  // namespace lockstep::nccl
