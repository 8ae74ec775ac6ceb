// SPDX-License-Identifier: Apache-2.0
// Runs calls by NCCL if every member has its data in the memory of its own GPU. Members ask each other for that when a
// call first starts. The query also verifies that all start the same call.
#include <algorithm>
#include <exception>

#include "collectives/communicator/communicator_core_gpus.hpp"

#include "collectives/communicator/gpu_levels.hpp"

namespace lockstep::detail {
namespace {

// Is in bytes. For smaller data on the host, the query between members would be noticeable (docs/gpu.md).
constexpr std::size_t asked_from = 4096;

const std::string by_nccl = "nccl";
const std::string why_nccl = "every member has its data in the memory of a GPU of its own";
const std::string by_levels = "nccl by levels";
const std::string why_levels = "all have their data in the memory of GPUs: those that are near each other meet first";

// Returns the bytes of the larger side, which all members know.
std::size_t bytes_of(const Spec& spec) {
  std::size_t count = spec.count;
  if (cuts_input(spec.collective)) count = spec.gives.total();
  if (cuts_output(spec.collective)) count = spec.takes.total();
  return count * spec.element_bytes;
}

}  // namespace

const std::string& BoundCall::algorithm() const {
  if (gpus && gpus->path == DeviceCall::DevicePath::nccl) return by_nccl;
  if (gpus && gpus->path == DeviceCall::DevicePath::levels) return by_levels;
  return call.plan->algorithm;
}

const std::string& BoundCall::why() const {
  if (gpus && gpus->path == DeviceCall::DevicePath::nccl) return why_nccl;
  if (gpus && gpus->path == DeviceCall::DevicePath::levels) return why_levels;
  return call.plan->why;
}

// Is called at the end of every call, and destroys NCCL's communicator after a failure. Otherwise a GPU would wait for
// a missing member, and memory could not be freed.
void CommunicatorCore::break_if_failed() noexcept {
  end_levels();
  nccl_communicator_.reset();
}

// True if members ask each other where the data of a call is. It is equal on all members. If members know only their
// own counts, the total size is unknown, so they ask.
bool CommunicatorCore::may_ask_where(const CallRequest& request, const Spec& spec, QueryRule query_rule) const {
  if (!may_use_nccl_ || query_rule == QueryRule::never || !nccl::can_do(spec, size())) return false;
  return request.stream || query_rule == QueryRule::once || has_own_counts(spec.collective) ||
         bytes_of(spec) >= asked_from;
}

std::size_t CommunicatorCore::asked_bytes() const {
  return may_use_nccl_ ? asked_from / static_cast<std::size_t>(size()) : std::numeric_limits<std::size_t>::max();
}

int CommunicatorCore::device_of(const CallRequest& request) const {
  if (request.reduction.op == ReduceOp::user && request.reduction.on_gpu.put == nullptr)
    return gpu::MemoryLocation::host;
  int device = DeviceCall::anywhere;
  for (const BufferView* each : {&request.input, &request.output}) {
    if (each->count == 0) continue;
    const gpu::MemoryLocation where = each->contiguous() ? where_is(*each) : gpu::MemoryLocation{};
    if (!where.on_device() || (device != DeviceCall::anywhere && device != where.device))
      return gpu::MemoryLocation::host;
    device = where.device;
  }
  return device;
}

std::shared_ptr<DeviceCall> CommunicatorCore::device_call_for(const Spec& spec, const CallRequest& request) const {
  auto gpus = std::make_shared<DeviceCall>();
  // An empty buffer may have an address in unrelated memory.
  const auto at = [](const BufferView& data) { return data.count > 0 ? static_cast<std::byte*>(data.data) : nullptr; };
  gpus->steps.push_back(
      {spec, at(request.input), at(request.output), request.reduction.factor, request.reduction.on_gpu});
  gpus->device = device_of(request);
  if (request.stream.value_or(nullptr) != nullptr) gpus->stream_device = gpu::backend()->device_of(*request.stream);
  return gpus;
}

BoundCall CommunicatorCore::prepare(std::span<const CallRequest> requests, const CallRequest& whole,
                                    std::function<BoundCall()> make_host_call) {
  if (!may_use_nccl_ || requests.empty()) return {};
  const ExclusiveUse use(members_, whole.origin);
  members_.refuse_if_closed();
  return members_.or_refuse([&] {
    BoundCall bound_call;
    bound_call.call.origin = whole.origin;
    bound_call.stream = whole.stream;
    bound_call.gpus = std::make_shared<DeviceCall>();
    int& device = bound_call.gpus->device;
    constexpr std::uint64_t in_stream = std::uint64_t{1} << 63U;
    // Members must have the same tensors in the same order.
    std::uint64_t counts = requests.size() | (whole.stream ? in_stream : 0);
    for (const CallRequest& each : requests) {
      const CallRequest request = with_options(each);
      const Spec spec = spec_of(request, size(), rank(), partitions_);
      if (!nccl::can_do(spec, size())) return BoundCall{};
      const auto one = device_call_for(spec, request);
      if (device == DeviceCall::anywhere) device = one->device;
      if (one->device != DeviceCall::anywhere && one->device != device) device = gpu::MemoryLocation::host;
      bound_call.gpus->steps.push_back(one->steps.front());
      counts = (counts ^ spec.count) * 0xff51afd7ed558ccdU;
      counts ^= counts >> 33U;
    }
    bound_call.gpus->meeting =
        meeting(spec_for(with_options(whole)),
                whole.stream ? "where the tensors are, in a stream" : "where the tensors are", counts | 4U);
    bound_call.gpus->make_host_call = std::move(make_host_call);
    return bound_call;
  });
}

void CommunicatorCore::decide_as(const BoundCall& bound_call, const BoundCall& earlier, const Origin& origin) {
  if (!bound_call.gpus || !earlier.gpus) return;
  const ExclusiveUse use(members_, origin);
  members_.refuse_if_closed();
  members_.or_refuse([&] {
    const DeviceCall::DevicePath path = earlier.gpus->path;
    // Either all members give NCCL the registered memory, or all give it other memory.
    const bool knew = earlier.gpus->is_same_memory && earlier.gpus->places != 0;
    bound_call.gpus->places = nccl_communicator_ ? nccl_communicator_->places_of(bound_call.gpus->steps) : 0;
    bound_call.gpus->set_same_memory(earlier.gpus->is_same_memory && bound_call.gpus->places == earlier.gpus->places);
    if (((path == DeviceCall::DevicePath::nccl || path == DeviceCall::DevicePath::levels) &&
         !fits(bound_call.gpus->device)) ||
        (knew && !bound_call.gpus->is_same_memory))
      throw Error(Code::usage,
                  text("on \"", members_.options().name,
                       "\", data that was in the memory of this member's GPU when all agreed to ",
                       "go by NCCL is elsewhere now, at ", place(origin)),
                  "keep it in that memory, or begin anew on all members");
    bound_call.gpus->path = earlier.gpus->path;
  });
}

// Refuses a captured stream in the first call on GPUs. Captured work does not run, but NCCL's communicator is made by
// work that runs.
void CommunicatorCore::refuse_if_captured(const BoundCall& bound_call) {
  if (nccl_communicator_ || levels_ || !bound_call.stream) return;
  members_.or_refuse([&] {
    if (!gpu::backend()->is_captured(*bound_call.stream)) return;
    throw Error(Code::usage,
                text("a stream that is captured was given to the first call of \"", members_.options().name,
                     "\" on GPUs, ", place(bound_call.call.origin)),
                "call something once before the stream is captured");
  });
}

// Finds the path of the call, which members decide together the first time.
void CommunicatorCore::find_way(const BoundCall& bound_call) {
  DeviceCall& gpus = *bound_call.gpus;
  members_.engine().progress_or_throw();
  if (gpus.path == DeviceCall::DevicePath::unknown && !may_go(gpus))
    gpus.path = DeviceCall::DevicePath::host;  // The reason was found since the call was planned.
  if (gpus.path == DeviceCall::DevicePath::unknown) {
    refuse_if_captured(bound_call);
    decide(gpus, bound_call.call.origin);
  }
  if (gpus.path == DeviceCall::DevicePath::host && !gpus.host_call)
    gpus.host_call = members_.or_refuse(gpus.make_host_call);
}

// Returns true if GPUs run the call. It is in a stream then.
bool CommunicatorCore::begin_on_gpus(const BoundCall& bound_call, CallHandle handle) {
  const DeviceCall& gpus = *bound_call.gpus;
  find_way(bound_call);
  if (gpus.path == DeviceCall::DevicePath::host) return false;
  Trial* const trial = gpus.path == DeviceCall::DevicePath::nccl ? trial_of(bound_call) : nullptr;
  if (trial != nullptr)
    run_in_turn(*trial, bound_call, handle);
  else if (gpus.path == DeviceCall::DevicePath::levels)
    run_levels(bound_call, pending_calls_.at(handle).behind);
  else
    begin_in_nccl(gpus.steps, bound_call, handle);
  return true;
}

// Starts the steps in NCCL. `bound_call` is the first of their calls.
void CommunicatorCore::begin_in_nccl(std::span<const nccl::NcclCall> steps, const BoundCall& bound_call,
                                     CallHandle handle) {
  or_break([&] {
    const gpu::Stream stream =
        bound_call.stream ? *bound_call.stream : nccl_communicator_->stream_after(pending_calls_.at(handle).behind);
    GpuWait pause(*this, "", bound_call.call.origin, &steps.front().spec);
    if (auto mark = nccl_communicator_->begin(steps, stream, std::ref(pause)))
      pending_calls_.at(handle).marks.push_back(std::move(mark));
    pending_calls_.at(handle).in_stream = bound_call.stream.has_value();
  });
}

// Returns true if the call becomes part of NCCL's single operation for calls started at once.
bool CommunicatorCore::joins(const BoundCall& bound_call, CallHandle handle) {
  if (!bound_call.gpus) return false;
  find_way(bound_call);
  if (bound_call.gpus->path != DeviceCall::DevicePath::nccl || trial_of(bound_call) != nullptr) return false;
  auto& together = pending_calls_.at(handle).together;
  together.insert(together.end(), bound_call.gpus->steps.begin(), bound_call.gpus->steps.end());
  return true;
}

void CommunicatorCore::begin_together(std::span<const BoundCall> calls, CallHandle handle) {
  const BoundCall* first = nullptr;
  for (const BoundCall& bound_call : calls) {
    if (!joins(bound_call, handle)) {
      begin(bound_call, handle);
      mark_end(bound_call, handle);
    } else if (first == nullptr) {
      first = &bound_call;
    }
  }
  if (first != nullptr) begin_in_nccl(pending_calls_.at(handle).together, *first, handle);
}

void CommunicatorCore::wait_for_nccl(const Origin& origin) {
  GpuWait pause(*this, "what was begun on GPUs before a call", origin);
  while (nccl_communicator_ && nccl_communicator_->is_working()) {
    nccl_communicator_->check();
    pause();
  }
}

bool CommunicatorCore::reached(CallHandle handle) {
  PendingCall& slot = pending_calls_.at(handle);
  if (slot.marks.empty()) return true;
  return or_break([&] {
    members_.engine().progress_or_throw();
    run_progress_hooks(0);
    if (nccl_communicator_) nccl_communicator_->check();
    std::erase_if(slot.marks, [](const auto& mark) { return mark->is_reached(); });
    return slot.marks.empty();
  });
}

void CommunicatorCore::wait_for_gpus(CallHandle handle) {
  if (pending_calls_.at(handle).marks.empty()) return;
  GpuWait pause(*this, "what was begun", pending_calls_.at(handle).origin);
  while (!reached(handle)) or_break([&] { pause(); });
}

// Waits for unfinished work, unless something has failed.
void CommunicatorCore::end_nccl() noexcept {
  if (!nccl_communicator_) return;
  try {
    if (!members_.engine().failed() && std::uncaught_exceptions() == 0) {
      GpuWait pause(*this, "what was begun on GPUs", {});
      nccl_communicator_->end(std::ref(pause));
    } else {  // A member that ends in good order waits for the work of all.
      members_.engine().refuse(
          Error(Code::peer_failed, "it left without ending what GPUs did for it", "see what it says itself"));
    }
  } catch (const std::exception& error) {
    members_.engine().log().error(
        text("while ending NCCL's group of \"", members_.options().name, "\": ", error.what()));
  }
  nccl_communicator_.reset();
}

}  // namespace lockstep::detail
