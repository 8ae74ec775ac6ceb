// SPDX-License-Identifier: Apache-2.0
// Prepares calls that cannot use their data in place.
#include "collectives/communicator/call_staging.hpp"

#include <algorithm>

#include "collectives/engine/device_copy_pipeline.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "collectives/node/call_context.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Returns the number of output elements that this member's call writes. Blocks may have gaps between them, and some
// calls have output only at the root.
std::size_t written_by(const Plan& plan) {
  const bool has_nothing_before_it = plan.spec.collective == Collective::exscan && plan.index == 0;
  if (plan.output_count == 0 || has_nothing_before_it) return 0;
  return cuts_output(plan.spec.collective) ? plan.spec.output_blocks.total() : plan.output_count;
}

// Returns the buffers for rounds that work on some data while the rest is copied. Returns null if there is too little
// data, if the output has gaps, or if the result replaces part of the input.
std::shared_ptr<const DeviceBuffers> device_buffers_of(const CallRequest& request, const Plan& plan, bool same,
                                                       gpu::MemoryLocation from, gpu::MemoryLocation to) {
  const bool is_whole = request.input.contiguous() && request.output.contiguous() &&
                        (!to.on_device() || written_by(plan) == request.output.count) && (same || !plan.spec.in_place);
  if (plan.in_node || plan.size == 1 || !is_whole || (!from.on_device() && !to.on_device())) return nullptr;
  DeviceBuffers all{.is_one_memory = same};
  std::size_t bytes = 0;
  for (const gpu::MemoryLocation where : {from, to}) {
    if (where.on_device())
      all.piece = std::max(all.piece, device_piece_bytes(gpu::backend()->costs(where.device), request.element_bytes));
  }
  if (from.on_device()) {
    all.input_device = from.device;
    all.input = static_cast<std::byte*>(request.input.data);
    bytes += request.input.count * request.element_bytes;
  }
  if (to.on_device()) {
    all.output_device = to.device;
    all.output = static_cast<std::byte*>(request.output.data);
    bytes = std::max(bytes, request.output.count * request.element_bytes);
  }
  if (bytes <= all.piece) return nullptr;
  return std::make_shared<const DeviceBuffers>(all);
}

}  // namespace

StagingBuffer CallStaging::take_memory(std::size_t bytes, bool for_gpu) const {
  return member_.or_refuse([&] { return make_staging_buffer(bytes, for_gpu); });
}

// True if members that share GPUs keep the order of a stream themselves, for contiguous data. It is equal on all
// members.
bool CallStaging::can_keep_order(const CallRequest& request, const Plan& plan) const {
  node::Room* const room = member_.engine().platform().room();
  if (!plan.in_node || room == nullptr || (!room->buffers().is_one_process() && room->gpus().shared() == nullptr))
    return false;
  const bool is_known = !reduces(request.collective) || request.reduction.op != ReduceOp::user;
  return is_known && node::has_known_places(request.collective);
}

// Logs why members could not map each other's memory on GPUs.
void CallStaging::log_mapping_failure() const {
  node::Room* const room = member_.engine().platform().room();
  if (room == nullptr || room->gpus().shared() == nullptr || !room->gpus().shared()->failure().is_known()) return;
  member_.exchange().log().warn(
      text("members of \"", member_.options().name, "\" ", room->gpus().shared()->failure().take()));
}

// Adds copies in and back for strided data, and for GPU data that the members cannot use in place. Input and output in
// one buffer share the staging memory.
void CallStaging::stage(BoundCall& bound_call, const CallRequest& request) const {
  if (can_keep_order(request, *bound_call.call.plan) && request.input.contiguous() && request.output.contiguous()) {
    bound_call.keeps_order = bound_call.stream && gpu::backend() != nullptr;
    return;
  }
  // Members that share a room use data in GPU memory themselves.
  const bool in_node = bound_call.call.plan->in_node;
  const bool same = request.input.data == request.output.data && request.input.stride == request.output.stride &&
                    request.input.count == request.output.count;
  const gpu::MemoryLocation from = where_is(request.input);
  const gpu::MemoryLocation to = same ? from : where_is(request.output);
  const bool stage_in = needs_staging(request.input, from, in_node);
  const bool stage_out = bound_call.call.plan->output_count > 0 && needs_staging(request.output, to, in_node);
  if (!stage_in && !stage_out) return;
  const std::size_t in_bytes = stage_in ? request.input.count * request.element_bytes : 0;
  const std::size_t out_bytes = stage_out && !(same && stage_in) ? request.output.count * request.element_bytes : 0;
  bound_call.staged = make_staging_buffer(in_bytes + out_bytes, from.on_device() || to.on_device());
  std::byte* const in = bound_call.staged.get();
  std::byte* const out = same ? in : in + in_bytes;
  if (bound_call.call.device_buffers =
          device_buffers_of(request, *bound_call.call.plan, same, stage_in ? from : gpu::MemoryLocation{},
                            stage_out ? to : gpu::MemoryLocation{});
      bound_call.call.device_buffers) {
    if (stage_in) bound_call.call.input = in;
    if (stage_out) bound_call.call.output = out;
    return;
  }
  if (stage_in) {
    bound_call.in.push_back({request.input, in, request.element_bytes, from});
    bound_call.call.input = in;
  }
  if (stage_out) {
    // Elements that the call does not write are copied back unchanged.
    if (!(same && stage_in) && written_by(*bound_call.call.plan) < request.output.count)
      bound_call.in.push_back({request.output, out, request.element_bytes, to});
    bound_call.back.push_back({request.output, out, request.element_bytes, to});
    bound_call.call.output = out;
  }
}

// Returns the devices of data that may be freed while the call is under way.
BufferDevices CallStaging::devices_of(const Call& call) {
  return {.input = call.plan->input_count > 0 ? gpu::where(call.input).device : gpu::MemoryLocation::host,
          .output = call.plan->output_count > 0 ? gpu::where(call.output).device : gpu::MemoryLocation::host};
}

BoundCall::BufferLocation CallStaging::location_of(const BufferView& data, std::size_t element_bytes) const {
  if (data.count == 0 || data.data == nullptr) return {};
  const std::size_t bytes = *data.extent(element_bytes) * element_bytes;
  const gpu::MemoryLocation where = where_is(data);
  if (where.on_device()) return {data.data, where};
  node::Room* const room = member_.engine().platform().room();
  if (room == nullptr) return {};
  std::shared_ptr<const std::atomic<std::uint32_t>> freed;
  member_.engine().alone([&] { freed = room->buffers().registry().freed_flag(data.data, bytes); });
  return freed ? BoundCall::BufferLocation{data.data, where, std::move(freed)} : BoundCall::BufferLocation{};
}

void CallStaging::locate(BoundCall& bound_call, const CallRequest& request) const {
  bound_call.locations = {location_of(request.input, request.element_bytes),
                          location_of(request.output, request.element_bytes)};
}

// Throws Error usage if planned memory was freed. Freed GPU memory would be taken for host memory, or be passed to a
// GPU that does not know it.
void CallStaging::refuse_if_freed(const BoundCall& bound_call, const Origin& origin) const {
  for (const BoundCall::BufferLocation& each : bound_call.locations) {
    if (each.data == nullptr) continue;
    if (each.freed != nullptr ? each.freed->load(std::memory_order_acquire) == 0 : gpu::where(each.data) == each.where)
      continue;
    member_.or_refuse([&] {
      throw Error(Code::usage,
                  text("the ", &each == &bound_call.locations.front() ? "input" : "output", " of a planned ",
                       to_string(bound_call.call.plan->spec.collective), " at ", place(origin), " was in ",
                       each.where.on_device() ? text("the memory of GPU ", each.where.device)
                                              : std::string("memory that all members took together"),
                       " when it was planned, and was freed since"),
                  "keep the buffers of a plan as long as it is started, or plan again on all members");
    });
  }
}

}  // namespace lockstep::detail
