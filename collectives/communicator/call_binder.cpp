// SPDX-License-Identifier: Apache-2.0
// Makes bound calls of requests: a Spec, a plan, staging memory, and a call for GPUs.
#include "collectives/communicator/call_binder.hpp"

#include <utility>

#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

const std::byte token{};  // Is the data of a barrier.

}  // namespace

const std::string& BoundCall::algorithm() const {
  return gpus && gpus->algorithm != nullptr ? *gpus->algorithm : call.plan->algorithm;
}

const std::string& BoundCall::why() const { return gpus && gpus->why != nullptr ? *gpus->why : call.plan->why; }

void CallBinder::set_subject(const CallSubject& subject) {
  subject_ = subject;
  const auto key = [](const CallSubject& all) {
    return Fingerprint().add(all.layout).add(all.variable).add(all.tag).add(all.merges).value();
  };
  subject_key_ = subject == CallSubject{} ? 0 : key(subject);
}

CallRequest CallBinder::with_options(CallRequest request) const {
  const CommunicatorOptions& options = member_.options();
  if (options.order == Order::reproducible) request.order = Order::reproducible;
  request.wire = options.wire;
  return request;
}

Spec CallBinder::spec_for(const CallRequest& request) {
  Spec spec = spec_of(request, member_.size(), member_.rank(), partitions_);
  spec.fingerprints.layout = layout_with(spec.fingerprints.layout, subject_.layout);
  spec.fingerprints.variable = subject_.variable;
  spec.fingerprints.tag = subject_.tag;
  spec.fingerprints.merges = subject_.merges;
  if (member_.options().strict) spec.fingerprints.place = fingerprint_of(request.origin);
  return spec;
}

BoundCall CallBinder::bind(const CallRequest& request, QueryRule query_rule) {
  member_.refuse_if_closed();
  return member_.or_refuse([&] {
    CallRequest whole = with_options(request);
    if (request.collective == Collective::barrier) whole.input = {const_cast<std::byte*>(&token), 1};
    const Spec spec = spec_for(whole);
    BoundCall bound_call;
    bound_call.call = {
        .plan = member_.planner().plan(spec),
        .input = whole.input.data,
        .output = whole.output.data,
        .kernel = request.reduction.op == ReduceOp::user ? nullptr : find_kernel(request.type, request.reduction.op),
        .user = request.reduction.user ? request.reduction.user->on_host : UserReduce{},
        .factor = request.reduction.factor,
        .origin = request.origin,
        .limit = member_.options().timeout};
    bound_call.stream = request.stream;
    if (request.stream && staging_.can_keep_order(request, *bound_call.call.plan))
      bound_call.call.plan = in_stream(bound_call.call.plan);
    std::shared_ptr<DeviceCall> gpus;
    if (query_rule != QueryRule::never) gpus = device_path_.bind(whole, spec, query_rule);
    if (gpus) {
      gpus->make_host_call = [this, bound_call, whole, query_rule]() mutable {
        stage(bound_call, whole, query_rule);
        return std::move(bound_call);
      };
      bound_call.gpus = std::move(gpus);
    } else {
      stage(bound_call, whole, query_rule);
    }
    return bound_call;
  });
}

void CallBinder::stage(BoundCall& bound_call, const CallRequest& request, QueryRule query_rule) const {
  staging_.stage(bound_call, request);
  if (query_rule != QueryRule::if_large) bound_call.call.devices = CallStaging::devices_of(bound_call.call);
}

// Returns the plan of the call in a stream. Its members know that all have given a stream.
std::shared_ptr<const Plan> CallBinder::in_stream(const std::shared_ptr<const Plan>& plan) {
  constexpr std::size_t kept = 1024;
  if (const auto known = stream_plans_.find(plan.get()); known != stream_plans_.end()) return known->second.in_stream;
  if (stream_plans_.size() == kept) stream_plans_.clear();
  auto made = std::make_shared<Plan>(*plan);
  made->in_stream = true;
  made->algorithm += " in a stream";
  stream_plans_[plan.get()] = {plan, made};
  return made;
}

BoundCall CallBinder::prepare(const CallRequest& request) {
  const ExclusiveUse use(member_, request.origin);
  BoundCall bound_call = bind(request, QueryRule::at_first_start);
  staging_.locate(bound_call, request);
  return bound_call;
}

BoundCall CallBinder::prepare(std::span<const CallRequest> requests, const CallRequest& whole,
                              std::function<BoundCall()> make_host_call) {
  if (device_path_.query_bytes() == DevicePath::never || requests.empty()) return {};
  const ExclusiveUse use(member_, whole.origin);
  member_.refuse_if_closed();
  return member_.or_refuse([&] {
    std::vector<CheckedRequest> checked;
    checked.reserve(requests.size());
    for (const CallRequest& each : requests) {
      const CallRequest request = with_options(each);
      checked.push_back({request, spec_of(request, member_.size(), member_.rank(), partitions_)});
    }
    const CallRequest all = with_options(whole);
    BoundCall bound_call;
    bound_call.gpus = device_path_.bind_all(checked, {all, spec_for(all)});
    if (!bound_call.gpus) return BoundCall{};
    bound_call.call.origin = whole.origin;
    bound_call.stream = whole.stream;
    bound_call.gpus->make_host_call = std::move(make_host_call);
    return bound_call;
  });
}

void CallBinder::decide_as(const BoundCall& bound_call, const BoundCall& earlier, const Origin& origin) {
  if (!bound_call.gpus || !earlier.gpus) return;
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  member_.or_refuse([&] { device_path_.decide_as(*bound_call.gpus, *earlier.gpus, origin); });
}

void CallBinder::check(const CallRequest& request) {
  const ExclusiveUse use(member_, request.origin);
  member_.refuse_if_closed();
  member_.or_refuse([&] { return spec_of(request, member_.size(), member_.rank(), partitions_); });
}

int CallBinder::packing_device(const CallRequest& whole, std::span<const CallRequest> tensors) {
  return device_path_.packing_device(whole, tensors, [&] {
    return member_.planner().plan(spec_of(with_options(whole), member_.size(), member_.rank(), partitions_));
  });
}

StagingBuffer CallBinder::packing_memory(int device, std::size_t bytes, bool is_pinned) {
  return device == gpu::MemoryLocation::host ? staging_.take_memory(bytes, is_pinned)
                                             : device_path_.scratch(device, bytes);
}

}  // namespace lockstep::detail
