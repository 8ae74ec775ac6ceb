// SPDX-License-Identifier: Apache-2.0
// Starts calls in streams, waits for streams, and keeps the memory that streams use.
#include "collectives/communicator/gpu_streams.hpp"

#include <chrono>
#include <exception>
#include <thread>

#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/plan.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {
namespace {

void refuse_if_not_there(gpu::Stream stream) {
  if (gpu::backend() == nullptr)
    throw Error(Code::usage, text("a stream of a GPU was given, but ", gpu::why_none()), "give none, or nullptr");
  if (gpu::backend()->is_captured(stream))
    throw Error(Code::usage, "a stream under capture was given to a call that needs the host",
                "call it outside of the graph; docs/gpu.md lists the calls that need no host");
}

// Waits at most 1 s for the stream, because the program may free its memory after a failure.
void wait_a_moment_for_stream(const BoundCall& bound_call) noexcept {
  if (!bound_call.packs_on_gpu) return;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    const auto mark = gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream);
    while (!mark->is_reached() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  } catch (const std::exception&) {
    return;  // Nothing runs in the stream any more.
  }
}

}  // namespace

void GpuStreams::wait_for(gpu::Stream stream, const Origin& origin) {
  or_break(member_, [&] {
    if (gpu::backend() == nullptr && stream == nullptr) return;
    refuse_if_not_there(stream);
    wait_for({gpu::backend()->mark(gpu::MemoryLocation::host, stream)}, origin);
  });
}

void GpuStreams::wait_for(const StreamMarks& marks, const Origin& origin) {
  if (marks.empty()) return;
  or_break(member_, [&] {
    GpuWait pause(member_, "work in a stream before a call", origin);
    for (const auto& mark : marks) {
      while (!mark->is_reached()) {
        nccl_.check();
        pause();
      }
    }
  });
}

bool GpuStreams::is_changed_by_host(const Call& call) {
  const Spec& spec = call.plan->spec;
  return reduces(spec.collective) && spec.op == ReduceOp::premul_sum && call.plan->input_count > 0 &&
         !gpu::where(call.input).on_device();
}

void GpuStreams::begin(const BoundCall& bound_call, DeviceProgress& progress) {
  try {
    Call call = bound_call.call;
    call.limit = member_.options().timeout;
    member_.or_refuse([&] {
      refuse_if_not_there(*bound_call.stream);
      call.stream = CallStream{*bound_call.stream, gpu::backend()->device_of(*bound_call.stream)};
      begin_copy_in(bound_call.in, *bound_call.stream);
    });
    member_.engine().run(call);
    member_.or_refuse([&] { begin_copy_back(bound_call.back, *bound_call.stream); });
    hold(bound_call);
    progress.in_stream = true;
  } catch (...) {
    wait_a_moment_for_stream(bound_call);
    hold(bound_call);
    throw;
  }
}

void GpuStreams::mark_end(const BoundCall& bound_call, DeviceProgress& progress) {
  member_.or_refuse(
      [&] { progress.marks.push_back(gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream)); });
}

StagingBuffer GpuStreams::scratch(int device, std::size_t bytes) {
  return member_.or_refuse([&] { return scratch_.take(device, bytes); });
}

// Keeps packed memory until the stream has done its present work.
void GpuStreams::hold(const BoundCall& bound_call) noexcept {
  if (!bound_call.packs_on_gpu) return;
  try {
    scratch_.use_until(gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream), bound_call.staged);
  } catch (const std::exception&) {
    keep_forever(bound_call.staged);  // The state of a failed GPU is unknown.
  }
}

bool GpuStreams::are_working() {
  bool works = false;
  // The engine's progress thread may look at the room as well.
  member_.engine().alone([&] { works = member_.engine().platform().room()->access().is_working(); });
  return works || scratch_.is_in_use();
}

void GpuStreams::end() noexcept {
  node::Room* const room = member_.engine().platform().room();
  if (room == nullptr) return;
  try {
    if (!member_.engine().failed() && std::uncaught_exceptions() == 0) {
      GpuWait pause(member_, "work in streams", {});
      while (are_working()) pause();
    }
    if (!are_working()) return;
  } catch (const std::exception& error) {
    member_.engine().log().error(
        text("while ending the calls of \"", member_.options().name, "\" in streams: ", error.what()));
  }
  scratch_.keep_what_is_in_use();
  try {
    member_.engine().alone([&] { room->gpus().keep_forever(); });
  } catch (const std::exception&) {
    room->gpus().keep_forever();  // Another thread of the program is inside, which is not allowed.
  }
}

}  // namespace lockstep::detail
