// SPDX-License-Identifier: Apache-2.0
// Starts calls by NCCL in a stream, and ends the communicator in order or by an abort.
#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/nccl_communicator_parts.hpp"
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
    return is_exchange(spec.collective) || spec.collective == Collective::all_gather ||
           spec.collective == Collective::broadcast;
  }
  if (spec.op == ReduceOp::user) return true;  // combines two at a time, so any number of members will do
  return members <= gpu::most_parts || is_reduced_by_nccl(spec.op == ReduceOp::premul_sum ? apart(spec) : spec);
}

NcclCommunicator::NcclCommunicator(NcclInterface& library, const NcclId& id, int size, int rank, int device,
                                   const WaitFunction& wait_function)
    : library_(library),
      size_(size),
      rank_(rank),
      device_(device),
      registered_(std::make_shared<RegisteredMemory>(library, device)) {
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
                last = last_, scratches = std::move(scratches_), registered = registered_]() mutable {
    library->leave(member);
    if (last) wait_for_end(*last);
    registered->close();
    backend->end_stream(device, stream);
    scratches.clear();
  };
  if (has_ended_) {
    leave();
    return;
  }
  constexpr auto patience = std::chrono::seconds(1);
  std::promise<void> left;
  const std::future<void> done = left.get_future();
  std::thread([work = std::move(leave), all = std::move(left)]() mutable {
    work();
    all.set_value();
  }).detach();
  done.wait_for(patience);
}

void NcclCommunicator::settle(const WaitFunction& wait_function) {
  while (library_.is_busy(member_)) wait_function();
}

void NcclCommunicator::check() { library_.is_busy(member_); }

void NcclCommunicator::end(const WaitFunction& wait_function) {
  forget(registered_->all(), false, wait_function);
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
      "buffers; of memory that allocate_on_gpu() gave, the same parts on all members), or call it outside of "
      "the graph");
}

std::shared_ptr<gpu::StreamMark> NcclCommunicator::begin(std::span<const NcclCall> given, gpu::Stream stream,
                                                         const WaitFunction& wait_function) {
  now_ = stream;
  std::span<const NcclCall> steps = given;
  std::vector<BounceBytes> detours;
  std::vector<NcclCall> changed;
  const auto has_detour = [&](const NcclCall& step) {
    const BounceBytes detour = detour_of(step);
    return detour.input + detour.output > 0;
  };
  if (std::ranges::any_of(given, has_detour)) {
    changed.assign(given.begin(), given.end());
    for (NcclCall& step : changed) {
      detours.push_back(detour_of(step));
      if (detours.back().input + detours.back().output > 0) step.spec = apart(step.spec);
    }
    steps = changed;
  }
  std::size_t bytes = 0;
  for (const NcclCall& step : steps) bytes += scratch_bytes(step);
  const std::size_t detours_at = bytes;
  for (const BounceBytes& detour : detours) bytes += detour.input + detour.output;
  const bool is_captured = gpu::backend()->is_captured(stream);
  if (is_captured && bytes > 0) refuse_captured(steps.front().spec);
  if (!is_captured && last_) gpu::backend()->wait_for(device_, stream, *last_);
  std::byte* const scratch = scratch_of(bytes);
  try {
    std::byte* next_detour = scratch + detours_at;
    for (std::size_t i = 0; i < changed.size(); ++i)
      next_detour = leave_by(detours[i], given[i], changed[i], next_detour);
    run(steps, scratch, wait_function);
    for (std::size_t i = 0; i < changed.size(); ++i) come_back(given[i], changed[i]);
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

void NcclCommunicator::run(std::span<const NcclCall> steps, std::byte* scratch, const WaitFunction& wait_function) {
  bool hands_out = false;
  const auto for_each = [&](const auto& f) {
    std::byte* next = scratch;
    for (const NcclCall& step : steps) {
      f(step, next);
      next += scratch_bytes(step);
    }
  };
  const auto for_each_composed = [&](const auto& f) {
    for_each([&](const NcclCall& step, std::byte* its) {
      if (is_composed(step.spec)) f(blocks_of(step), its);
    });
  };
  group([&] { for_each([&](const NcclCall& step, std::byte* its) { begin_step(step, its); }); }, wait_function);
  for_each_composed([&](const ReductionBlocks& blocks, std::byte* its) {
    if (is_scan(blocks.step->spec)) return combine_before(*blocks.step, its);
    combine_parts(blocks, its);
    hands_out |= blocks.each > 0;
  });
  if (hands_out) {
    group([&] { for_each_composed([&](const ReductionBlocks& blocks, std::byte* its) { hand_out(blocks, its); }); },
          wait_function);
  }
}

void NcclCommunicator::begin_step(const NcclCall& step, std::byte* scratch) {
  if (is_scan(step.spec))
    return library_.all_gather(member_, step.input, scratch, step.spec.count * step.spec.element_bytes, now_);
  if (is_composed(step.spec)) return exchange_parts(blocks_of(step), scratch);
  if (lockstep::reduces(step.spec.collective)) return reduce(step);
  if (is_exchange(step.spec.collective)) return exchange(step, scratch);
  move(step);
}

void NcclCommunicator::reduce(const NcclCall& step) {
  const Spec& spec = step.spec;
  switch (spec.collective) {
    case Collective::all_reduce:
      return library_.all_reduce(member_, step.input, step.output, spec.count, spec.type, spec.op, now_);
    case Collective::reduce:
      return library_.reduce(member_, step.input, step.output, spec.count, spec.type, spec.op, spec.root, now_);
    default:
      return library_.reduce_scatter(member_, step.input, step.output, spec.count, spec.type, spec.op, now_);
  }
}

void NcclCommunicator::move(const NcclCall& step) {
  const std::size_t bytes = step.spec.count * step.spec.element_bytes;
  if (step.spec.collective == Collective::all_gather)
    return library_.all_gather(member_, step.input, step.output, bytes, now_);
  const std::byte* const from = step.spec.root == rank_ ? step.input : step.output;
  library_.broadcast(member_, from, step.output, bytes, step.spec.root, now_);
}

std::size_t NcclCommunicator::scratch_bytes(const NcclCall& step) const {
  const Spec& spec = step.spec;
  if (is_scan(spec)) return round_up(spec.count * spec.element_bytes * static_cast<std::size_t>(size_));
  if (is_composed(spec)) return slot_bytes(blocks_of(step)) * static_cast<std::size_t>(size_);
  const bool is_copied =
      is_exchange(spec.collective) && spec.in_place && cuts_input(spec.collective) && cuts_output(spec.collective);
  return is_copied ? round_up(spec.gives.extent() * spec.element_bytes) : 0;
}

void NcclCommunicator::send(const std::byte* from, std::size_t bytes, int to) {
  library_.send(member_, from, bytes, to, now_);
}

void NcclCommunicator::receive(std::byte* to, std::size_t bytes, int from) {
  library_.receive(member_, to, bytes, from, now_);
}

void NcclCommunicator::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) gpu::backend()->begin_copy(device_, to, from, bytes, now_);
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
