// SPDX-License-Identifier: Apache-2.0
// Calls whose data a call cannot work on where it lies.
#include "collectives/communicator/team_parts.hpp"
#include "collectives/engine/lift.hpp"
#include "collectives/node/work.hpp"

namespace lockstep::detail {
namespace {

// How much of its output this member's call writes: blocks may have gaps between them, and only the root takes.
std::size_t written_by(const Plan& plan) {
  const bool has_nothing_before_it = plan.spec.collective == Collective::exscan && plan.index == 0;
  if (plan.output_count == 0 || has_nothing_before_it) return 0;
  return cuts_output(plan.spec.collective) ? plan.spec.takes.total() : plan.output_count;
}

// Where the rounds can go on with some of the data while the rest is on its way: nothing where there is too little of
// it, where what the call does not write lies between what it writes, or where the result goes to a part of what is
// read.
std::shared_ptr<const Lifting> lifting(const Ask& ask, const Plan& plan, bool same, gpu::Where from, gpu::Where to) {
  const bool is_whole = ask.input.contiguous() && ask.output.contiguous() &&
                        (!to.on_device() || written_by(plan) == ask.output.count) && (same || !plan.spec.in_place);
  if (plan.in_node || plan.size == 1 || !is_whole || (!from.on_device() && !to.on_device())) return nullptr;
  Lifting all{.is_one_memory = same};
  std::size_t bytes = 0;
  for (const gpu::Where where : {from, to}) {
    if (where.on_device())
      all.piece = std::max(all.piece, lifted_piece(gpu::layer()->costs(where.device), ask.element_bytes));
  }
  if (from.on_device()) {
    all.input_device = from.device;
    all.input = static_cast<std::byte*>(ask.input.data);
    bytes += ask.input.count * ask.element_bytes;
  }
  if (to.on_device()) {
    all.output_device = to.device;
    all.output = static_cast<std::byte*>(ask.output.data);
    bytes = std::max(bytes, ask.output.count * ask.element_bytes);
  }
  if (bytes <= all.piece) return nullptr;
  return std::make_shared<const Lifting>(all);
}

}  // namespace

Staged Team::take_memory(std::size_t bytes, bool for_gpu) {
  return or_refuse([&] { return make_staged(bytes, for_gpu); });
}

// Whether members who share GPUs see to the order of a stream themselves, where the data is contiguous. All alike.
bool Team::can_keep_order(const Ask& ask, const Plan& plan) const {
  const node::Room* const room = engine_->world().room();
  if (!plan.in_node || room == nullptr || (!room->is_one_process() && room->gpus() == nullptr)) return false;
  const bool is_known = !reduces(ask.collective) || ask.reduction.op != ReduceOp::user;
  return is_known && node::Work::has_known_places(ask.collective);
}

// Where members would map each other's memory on GPUs and could not.
void Team::say_reason() const {
  node::Room* const room = engine_->world().room();
  if (room == nullptr || room->gpus() == nullptr || !room->gpus()->has_reason()) return;
  exchange_->log().warn(text("members of \"", options_.name, "\" ", room->gpus()->take_reason()));
}

void Team::stage(Ready& ready, const Ask& ask) const {
  if (can_keep_order(ask, *ready.call.plan) && ask.input.contiguous() && ask.output.contiguous()) {
    ready.keeps_order = ready.stream && gpu::layer() != nullptr;
    return;
  }
  // Those who meet in the room see to data in GPUs' memory themselves.
  const bool in_node = ready.call.plan->in_node;
  const bool same =
      ask.input.data == ask.output.data && ask.input.stride == ask.output.stride && ask.input.count == ask.output.count;
  const gpu::Where from = where_is(ask.input);
  const gpu::Where to = same ? from : where_is(ask.output);
  const bool stage_in = needs_staging(ask.input, from, in_node);
  const bool stage_out = ready.call.plan->output_count > 0 && needs_staging(ask.output, to, in_node);
  if (!stage_in && !stage_out) return;
  const std::size_t in_bytes = stage_in ? ask.input.count * ask.element_bytes : 0;
  const std::size_t out_bytes = stage_out && !(same && stage_in) ? ask.output.count * ask.element_bytes : 0;
  ready.staged = make_staged(in_bytes + out_bytes, from.on_device() || to.on_device());
  std::byte* const in = ready.staged.get();
  std::byte* const out = same ? in : in + in_bytes;
  if (ready.call.lifting =
          lifting(ask, *ready.call.plan, same, stage_in ? from : gpu::Where{}, stage_out ? to : gpu::Where{});
      ready.call.lifting) {
    if (stage_in) ready.call.input = in;
    if (stage_out) ready.call.output = out;
    return;
  }
  if (stage_in) {
    ready.in.push_back({ask.input, in, ask.element_bytes, from});
    ready.call.input = in;
  }
  if (stage_out) {
    // What the call does not write comes back as it was.
    if (!(same && stage_in) && written_by(*ready.call.plan) < ask.output.count)
      ready.in.push_back({ask.output, out, ask.element_bytes, to});
    ready.back.push_back({ask.output, out, ask.element_bytes, to});
    ready.call.output = out;
  }
}

// Of what is not waited for at once, and may be freed meanwhile.
BufferDevices Team::devices_of(const Call& call) {
  return {.input = call.plan->input_count > 0 ? gpu::where(call.input).device : gpu::Where::host,
          .output = call.plan->output_count > 0 ? gpu::where(call.output).device : gpu::Where::host};
}

bool Team::is_known(const void* data, std::size_t bytes) {
  node::Room* const room = engine_->world().room();
  bool is_known = false;
  if (room != nullptr) engine_->alone([&] { is_known = room->lookup().has(data, bytes); });
  return is_known;
}

Ready::Lying Team::lying(const Data& data, std::size_t element_bytes) {
  if (data.count == 0 || data.data == nullptr) return {};
  const std::size_t bytes = *data.extent(element_bytes) * element_bytes;
  const gpu::Where where = where_is(data);
  const bool can_be_looked_for = where.on_device() || is_known(data.data, bytes);
  return can_be_looked_for ? Ready::Lying{data.data, bytes, where} : Ready::Lying{};
}

// What was on a GPU would be taken for the host's, or given to a GPU that does not know it any more.
void Team::refuse_if_freed(const Ready& ready, const Origin& origin) {
  for (const Ready::Lying& each : ready.lying) {
    if (each.data == nullptr) continue;
    if (each.where.on_device() ? gpu::where(each.data) == each.where : is_known(each.data, each.bytes)) continue;
    or_refuse([&] {
      throw Error(Code::usage,
                  text("the ", &each == &ready.lying.front() ? "input" : "output", " of a planned ",
                       to_string(ready.call.plan->spec.collective), " at ", place(origin), " was in ",
                       each.where.on_device() ? text("the memory of GPU ", each.where.device)
                                              : std::string("memory that all members took together"),
                       " when it was planned, and is not there any more: it was freed"),
                  "keep the buffers of a plan as long as it is started, or plan anew on all members");
    });
  }
}

// Data is copied to where a call that has a slot works on it; where that fails the call ends before it began.
void Team::copy_all(std::span<const Copy> copies, Handle handle) {
  if (copies.empty()) return;
  try {
    or_refuse([&] { copy_in(copies); });
  } catch (...) {
    release(handle);
    throw;
  }
}

}  // namespace lockstep::detail
