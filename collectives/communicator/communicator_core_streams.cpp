// SPDX-License-Identifier: Apache-2.0
// Runs calls in the order of a GPU's stream without NCCL. Members that share GPUs order them by events. The host waits
// for the stream if it has a part in the call.
#include <exception>

#include "collectives/communicator/communicator_core_gpus.hpp"

namespace lockstep::detail {

void CommunicatorCore::refuse_if_not_there(gpu::Stream stream) {
  if (gpu::backend() == nullptr)
    throw Error(Code::usage, text("a stream of a GPU was given, but ", gpu::why_none()), "give none, or nullptr");
  if (gpu::backend()->is_captured(stream))
    throw Error(Code::usage, "a stream that is captured was given to a call that the host takes part in",
                "call it outside of the graph; docs/gpu.md says what GPUs do by themselves");
}

void CommunicatorCore::wait_for_stream(gpu::Stream stream, const Origin& origin) {
  or_break([&] {
    if (gpu::backend() == nullptr && stream == nullptr) return;
    refuse_if_not_there(stream);
    wait_for_marks({gpu::backend()->mark(gpu::MemoryLocation::host, stream)}, origin);
  });
}

// Lets the host wait for the marks.
void CommunicatorCore::wait_for_marks(const StreamMarks& marks, const Origin& origin) {
  if (marks.empty()) return;
  or_break([&] {
    GpuWait pause(*this, "what is in a stream before a call", origin);
    for (const auto& mark : marks) {
      while (!mark->is_reached()) {
        if (nccl_communicator_) nccl_communicator_->check();
        pause();
      }
    }
  });
}

// Returns the plan of the call in a stream. Its members know that all have given a stream.
std::shared_ptr<const Plan> CommunicatorCore::in_stream(const std::shared_ptr<const Plan>& plan) {
  constexpr std::size_t kept = 1024;
  if (const auto known = stream_plans_.find(plan.get()); known != stream_plans_.end()) return known->second.in_stream;
  if (stream_plans_.size() == kept) stream_plans_.clear();
  auto made = std::make_shared<Plan>(*plan);
  made->in_stream = true;
  made->algorithm += " in a stream";
  constexpr std::uint64_t other_choice = 8;
  made->choice += other_choice;
  stream_plans_[plan.get()] = {plan, made};
  return made;
}

// True if the call multiplies this member's input on the host before members meet, so that the input must be complete.
bool CommunicatorCore::is_changed_by_host(const Call& call) {
  const Spec& spec = call.plan->spec;
  return reduces(spec.collective) && spec.op == ReduceOp::premul_sum && call.plan->input_count > 0 &&
         !gpu::where(call.input).on_device();
}

// Starts a call among members that share GPUs. It waits for the other members, but not for GPUs if all have their data
// there.
void CommunicatorCore::begin_in_stream(const BoundCall& bound_call, CallHandle handle) {
  try {
    Call call = bound_call.call;
    call.limit = members_.options().timeout;
    if (bound_call.staged) pending_calls_.at(handle).staged.push_back(bound_call.staged);
    members_.or_refuse([&] {
      refuse_if_not_there(*bound_call.stream);
      call.stream = CallStream{*bound_call.stream, gpu::backend()->device_of(*bound_call.stream)};
      begin_copy_in(bound_call.in, *bound_call.stream);
    });
    members_.engine().wait(members_.engine().start(call));
    members_.or_refuse([&] { begin_copy_back(bound_call.back, *bound_call.stream); });
    hold_in_stream(bound_call);
    pending_calls_.at(handle).in_stream = true;
  } catch (...) {
    wait_a_moment_for_stream(bound_call);
    hold_in_stream(bound_call);
    throw;
  }
}

// Marks the end of the call in its stream, for a Request.
void CommunicatorCore::mark_end(const BoundCall& given, CallHandle handle) {
  const BoundCall& bound_call = given.gpus && given.gpus->host_call ? *given.gpus->host_call : given;
  if (!bound_call.keeps_order) return;
  members_.or_refuse([&] {
    pending_calls_.at(handle).marks.push_back(gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream));
  });
}

// Waits until streams have finished the work of this member and of others in its memory, before their memory is freed.
void CommunicatorCore::end_streams() noexcept {
  node::Room* const room = members_.engine().world().room();
  if (room == nullptr) return;
  const auto is_working = [&] {
    bool works = false;
    // The engine's progress thread may look at the room as well.
    members_.engine().alone([&] { works = room->is_working(); });
    return works || scratch_.is_in_use();
  };
  try {
    if (!members_.engine().failed() && std::uncaught_exceptions() == 0) {
      GpuWait pause(*this, "what was begun in streams", {});
      while (is_working()) pause();
    }
    if (!is_working()) return;
  } catch (const std::exception& error) {
    members_.engine().log().error(
        text("while ending the calls of \"", members_.options().name, "\" in streams: ", error.what()));
  }
  scratch_.keep_what_is_in_use();
  try {
    members_.engine().alone([&] { room->keep_on_gpus(); });
  } catch (const std::exception&) {
    room->keep_on_gpus();  // Another thread of the program is inside, which is not allowed.
  }
}

// Returns true if the host has nothing left to do. The program then continues, and the stream has the result.
bool CommunicatorCore::stays_in_stream(CallHandle handle) {
  const PendingCall& slot = pending_calls_.at(handle);
  if (!slot.in_stream || !slot.tickets.empty()) return false;
  pending_calls_.release(handle);
  return true;
}

}  // namespace lockstep::detail
