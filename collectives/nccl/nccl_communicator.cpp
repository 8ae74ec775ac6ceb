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
#include "collectives/mix_hash.hpp"
#include "collectives/nccl/bounce_buffers.hpp"
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
  const NcclEndpoint endpoint{library_, member_, size_, rank_, device_, stream};
  std::span<const NcclCall> steps = given;
  std::vector<BounceBuffers> bounces;
  std::vector<NcclCall> changed;
  const auto is_bounced = [&](const NcclCall& step) { return BounceBuffers(endpoint, *registered_, step).bytes() > 0; };
  if (std::ranges::any_of(given, is_bounced)) {
    changed.assign(given.begin(), given.end());
    for (std::size_t i = 0; i < given.size(); ++i) {
      bounces.emplace_back(endpoint, *registered_, given[i]);
      if (bounces.back().bytes() > 0) changed[i].spec = apart(changed[i].spec);
    }
    steps = changed;
  }
  std::size_t bytes = 0;
  for (const NcclCall& step : steps) bytes += scratch_bytes(endpoint, step);
  const std::size_t bounces_at = bytes;
  for (const BounceBuffers& each : bounces) bytes += each.bytes();
  const bool is_captured = gpu::backend()->is_captured(stream);
  if (is_captured && bytes > 0) refuse_captured(steps.front().spec);
  if (!is_captured && last_) gpu::backend()->wait_for(device_, stream, *last_);
  std::byte* const scratch = scratch_of(bytes);
  try {
    std::byte* next = scratch + bounces_at;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      bounces[i].copy_in(changed[i], next);
      next += bounces[i].bytes();
    }
    run(endpoint, steps, scratch, wait_function);
    for (std::size_t i = 0; i < changed.size(); ++i) bounces[i].copy_back(changed[i]);
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
