// SPDX-License-Identifier: Apache-2.0
// Chooses the path of calls on GPUs, and starts them there.
#include "collectives/communicator/gpu_path.hpp"

#include <algorithm>

#include "collectives/communicator/call_staging.hpp"
#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/mix_hash.hpp"
#include "collectives/node/gpu_benefit.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::detail {
namespace {

// Is in bytes. For smaller data on the host, the query between members would be noticeable (docs/gpu.md).
constexpr std::size_t asked_from = 4096;

const std::string by_nccl = "nccl";
const std::string why_nccl = "every member has its data in the memory of a GPU of its own";
const std::string by_levels = "nccl by levels";
const std::string why_levels = "all data is in GPU memory: members on one GPU or node combine first";

// Returns the bytes of the larger side, which all members know.
std::size_t bytes_of(const Spec& spec) {
  std::size_t count = spec.count;
  if (cuts_input(spec.collective)) count = spec.input_blocks.total();
  if (cuts_output(spec.collective)) count = spec.output_blocks.total();
  return count * spec.element_bytes;
}

// Returns the GPU that holds all data of the request, or the host if no single GPU does.
int device_of(const CallRequest& request) {
  if (request.reduction.user && request.reduction.user->on_gpu.put == nullptr) return gpu::MemoryLocation::host;
  int device = GpuCall::anywhere;
  for (const BufferView* each : {&request.input, &request.output}) {
    if (each->count == 0) continue;
    const gpu::MemoryLocation where = each->contiguous() ? where_is(*each) : gpu::MemoryLocation{};
    if (!where.on_device() || (device != GpuCall::anywhere && device != where.device)) return gpu::MemoryLocation::host;
    device = where.device;
  }
  return device;
}

nccl::NcclCall step_of(const CallRequest& request, const Spec& spec) {
  // An empty buffer may have an address in unrelated memory.
  const auto at = [](const BufferView& data) { return data.count > 0 ? static_cast<std::byte*>(data.data) : nullptr; };
  const Reduction& reduction = request.reduction;
  return {spec, at(request.input), at(request.output), reduction.factor,
          reduction.user ? reduction.user->on_gpu : gpu::UserLaunch{}};
}

}  // namespace

void GpuCall::choose(Path chosen) {
  path = chosen;
  algorithm = chosen == Path::nccl ? &by_nccl : chosen == Path::levels ? &by_levels : nullptr;
  why = chosen == Path::nccl ? &why_nccl : chosen == Path::levels ? &why_levels : nullptr;
}

// A member's part of a call that asks may be as small as the whole divided by the members.
GpuPath::GpuPath(CommunicatorMember& member, CommunicatorFactory& factory)
    : member_(member),
      arrangement_(member, factory, query_bytes_),
      streams_(member, arrangement_.nccl()),
      votes_(member, arrangement_) {
  if (member.all_have_gpus()) query_bytes_ = asked_from / static_cast<std::size_t>(member.size());
}

// True if members ask each other where the data of a call is. It is equal on all members. If members know only their
// own counts, the total size is unknown, so they ask.
bool GpuPath::may_query(const CallRequest& request, const Spec& spec, QueryRule query_rule) const {
  if (!arrangement_.may_run() || query_rule == QueryRule::never || !nccl::can_do(spec, member_.size())) return false;
  return request.stream || query_rule == QueryRule::at_first_start || has_own_counts(spec.collective) ||
         bytes_of(spec) >= asked_from;
}

std::shared_ptr<DeviceCall> GpuPath::bind(const CallRequest& request, const Spec& spec, QueryRule query_rule) {
  if (!may_query(request, spec, query_rule)) return nullptr;
  auto call = std::make_shared<GpuCall>();
  call->steps.push_back(step_of(request, spec));
  call->device = device_of(request);
  if (request.stream.value_or(nullptr) != nullptr) call->stream_device = gpu::backend()->device_of(*request.stream);
  call->vote = request.stream ? votes_.plan_for(spec, "in a stream", {.vote = PlanChoice::Vote::stream_path})
                              : votes_.plan_for(spec, "where the data is", {.vote = PlanChoice::Vote::data_location});
  return call;
}

std::shared_ptr<DeviceCall> GpuPath::bind_all(std::span<const CheckedRequest> requests, const CheckedRequest& whole) {
  if (!arrangement_.may_run()) return nullptr;
  auto call = std::make_shared<GpuCall>();
  int& device = call->device;
  constexpr std::uint64_t in_stream = std::uint64_t{1} << 63U;
  const bool has_stream = whole.request.stream.has_value();
  // Members must have the same tensors in the same order.
  std::uint64_t counts = requests.size() | (has_stream ? in_stream : 0);
  for (const auto& [request, spec] : requests) {
    if (!nccl::can_do(spec, member_.size())) return nullptr;
    const int its = device_of(request);
    if (device == GpuCall::anywhere) device = its;
    if (its != GpuCall::anywhere && its != device) device = gpu::MemoryLocation::host;
    call->steps.push_back(step_of(request, spec));
    counts = mix_hash(counts, spec.count);
  }
  call->vote = votes_.plan_for(whole.spec, has_stream ? "where the tensors are, in a stream" : "where the tensors are",
                               {.vote = PlanChoice::Vote::tensor_locations, .tensor_hash = counts});
  return call;
}

void GpuPath::decide_as(DeviceCall& given, const DeviceCall& earlier_call, const Origin& origin) {
  GpuCall& call = gpu_call_of(given);
  const GpuCall& earlier = gpu_call_of(earlier_call);
  const bool is_on_gpus = earlier.path == GpuCall::Path::nccl || earlier.path == GpuCall::Path::levels;
  if (is_on_gpus && !arrangement_.fits(call.device))
    throw Error(
        Code::usage,
        text("on \"", member_.options().name, "\", data that was in the memory of this member's GPU when all agreed ",
             "to use NCCL is elsewhere now, at ", place(origin)),
        "keep it in that memory, or plan the call again on all members");
  call.choose(earlier.path);
}

void GpuPath::decide_on(DeviceCall& given, int device, const Origin& origin) {
  GpuCall& call = gpu_call_of(given);
  call.device = device;
  arrangement_.choose_path(call, origin);
}

// Refuses a captured stream in the first call on GPUs. Captured work does not run, but NCCL's communicator is made by
// work that runs.
void GpuPath::refuse_if_captured(const BoundCall& bound_call) {
  if (arrangement_.is_made() || !bound_call.stream) return;
  member_.or_refuse([&] {
    if (!gpu::backend()->is_captured(*bound_call.stream)) return;
    throw Error(Code::usage,
                text("a stream under capture was given to the first call of \"", member_.options().name, "\" on GPUs, ",
                     place(bound_call.call.origin)),
                "make one call before the stream is captured");
  });
}

void GpuPath::find_path(const BoundCall& bound_call) {
  GpuCall& call = gpu_call_of(*bound_call.gpus);
  member_.engine().progress_or_throw();
  if (call.path == GpuCall::Path::unknown && !arrangement_.may_run(call))
    call.choose(GpuCall::Path::host);  // The reason was found since the call was planned.
  if (call.path == GpuCall::Path::unknown) {
    refuse_if_captured(bound_call);
    votes_.decide(call, bound_call.call.origin);
  }
  if (call.path == GpuCall::Path::host && !call.host_call) call.host_call = member_.or_refuse(call.make_host_call);
}

bool GpuPath::begin(const BoundCall& bound_call, DeviceProgress& progress) {
  const GpuCall& call = gpu_call_of(*bound_call.gpus);
  find_path(bound_call);
  if (call.path == GpuCall::Path::host) return false;
  if (call.path == GpuCall::Path::levels)
    run_levels(bound_call, progress.behind);
  else
    arrangement_.nccl().begin(call.steps, bound_call, progress);
  return true;
}

// Returns true if the call becomes part of NCCL's single operation for calls started at once.
bool GpuPath::joins(const BoundCall& bound_call) {
  if (!bound_call.gpus) return false;
  find_path(bound_call);
  const GpuCall& call = gpu_call_of(*bound_call.gpus);
  if (call.path != GpuCall::Path::nccl) return false;
  joined_.insert(joined_.end(), call.steps.begin(), call.steps.end());
  return true;
}

void GpuPath::begin_all(std::span<const BoundCall> calls, DeviceProgress& progress,
                        const std::function<void(const BoundCall&)>& begin_alone) {
  joined_.clear();
  const BoundCall* first = nullptr;
  for (const BoundCall& bound_call : calls) {
    if (!joins(bound_call))
      begin_alone(bound_call);
    else if (first == nullptr)
      first = &bound_call;
  }
  if (first != nullptr) arrangement_.nccl().begin(joined_, *first, progress);
}

bool GpuPath::begin_in_stream(const BoundCall& bound_call, const Origin& origin, DeviceProgress& progress) {
  if (bound_call.stream && (!bound_call.keeps_order || GpuStreams::is_changed_by_host(bound_call.call)))
    streams_.wait_for(*bound_call.stream, origin);
  streams_.wait_for(progress.behind, origin);
  if (!bound_call.keeps_order) return false;
  streams_.begin(bound_call, progress);
  return true;
}

void GpuPath::mark_end(const BoundCall& bound_call, DeviceProgress& progress) {
  streams_.mark_end(bound_call, progress);
}

bool GpuPath::has_reached(DeviceProgress& progress) {
  return or_break(member_, [&] {
    member_.engine().progress_or_throw();
    run_progress_hooks(0);
    arrangement_.nccl().check();
    std::erase_if(progress.marks, [](const auto& mark) { return mark->is_reached(); });
    return progress.marks.empty();
  });
}

void GpuPath::wait(DeviceProgress& progress, const Origin& origin) {
  GpuWait pause(member_, "GPU work of a call", origin);
  while (!progress.marks.empty() && !has_reached(progress)) or_break(member_, [&] { pause(); });
}

// Runs the levels. The host waits between the stages, and first for the earlier work in the stream.
void GpuPath::run_levels(const BoundCall& bound_call, const StreamMarks& behind) {
  const Origin& origin = bound_call.call.origin;
  if (bound_call.stream) streams_.wait_for(*bound_call.stream, origin);
  streams_.wait_for(behind, origin);
  or_break(member_, [&] {
    arrangement_.nccl().wait_until_idle(origin);
    arrangement_.levels()->run(gpu_call_of(*bound_call.gpus).steps, member_.options().timeout, origin);
  });
}

int GpuPath::packing_device(const CallRequest& whole, std::span<const CallRequest> tensors,
                            const std::function<std::shared_ptr<const Plan>()>& plan) {
  int device = GpuCall::anywhere;
  for (const CallRequest& each : tensors) {
    const int its = device_of(each);
    if (device != GpuCall::anywhere && its != GpuCall::anywhere && its != device) return gpu::MemoryLocation::host;
    if (its != GpuCall::anywhere) device = its;
  }
  if (device < 0) return gpu::MemoryLocation::host;
  return member_.or_refuse([&] {
    const auto planned = plan();
    bool works = false;
    if (CallStaging(member_).can_keep_order(whole, *planned))
      member_.engine().alone([&] { works = works_on(device, whole, *planned); });
    return works ? device : gpu::MemoryLocation::host;
  });
}

// True if the node's members would work in that GPU's memory, as far as this one knows, and faster than on the host.
// In a stream they do so at any cost, since the host would have to wait for the work before the call.
bool GpuPath::works_on(int device, const CallRequest& whole, const Plan& plan) const {
  const node::Gpus* const shared = member_.engine().platform().room()->gpus().shared();
  if (shared != nullptr && (!shared->agreement().can_map() || shared->number_of(device) == node::Gpus::unknown))
    return false;
  if (whole.stream) return gpu::backend()->device_of(*whole.stream) == device;
  if (whole.output.count * whole.element_bytes < node::min_gpu_query_bytes) return false;
  // Processes that measured here would all do it at once and disturb each other. So the first batch uses the GPU
  // without a measurement, and its result serves the later ones.
  const bool have_agreed = shared != nullptr && shared->agreement().has_mapped();
  if (shared != nullptr && !have_agreed && !shared->agreement().was_left_untested()) return true;
  return node::is_faster_on_gpus(plan.spec, member_.size(),
                                 have_agreed ? shared->agreement().costs() : gpu::backend()->costs(device), true);
}

// Destroys NCCL's communicator and the levels. Otherwise a GPU would wait for a missing member, and memory could not be
// freed.
void GpuPath::abort() noexcept {
  arrangement_.end_levels();
  arrangement_.nccl().abort();
}

void GpuPath::end() noexcept {
  arrangement_.end_levels();
  arrangement_.nccl().end();
  streams_.end();
}

void GpuPath::keep_memory() { votes_.keep_memory(); }

}  // namespace lockstep::detail
