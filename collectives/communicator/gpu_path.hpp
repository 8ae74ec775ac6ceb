// SPDX-License-Identifier: Apache-2.0
// Implements the device path by NCCL, by levels, and by the streams of GPUs that members share.
//
// A CommunicatorCore owns it, if the build has CUDA or tests. It decides between three ways: NCCL among members with a
// GPU each (GpuArrangement), two levels (GpuLevels), and streams of GPUs that members share (GpuStreams).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/device_votes.hpp"
#include "collectives/communicator/gpu_arrangement.hpp"
#include "collectives/communicator/gpu_streams.hpp"

namespace lockstep::detail {

// Runs calls on GPUs if every member has its data in the memory of a GPU. Members ask each other for that when a call
// first starts. The query also verifies that all start the same call.
class GpuPath final : public DevicePath {
 public:
  GpuPath(CommunicatorMember& member, CommunicatorFactory& factory);

  std::shared_ptr<DeviceCall> bind(const CallRequest& request, const Spec& spec, QueryRule query_rule) override;
  std::shared_ptr<DeviceCall> bind_all(std::span<const CheckedRequest> requests, const CheckedRequest& whole) override;
  void decide_as(DeviceCall& given, const DeviceCall& earlier, const Origin& origin) override;
  void decide_on(DeviceCall& given, int device, const Origin& origin) override;

  bool begin(const BoundCall& bound_call, DeviceProgress& progress) override;
  void begin_all(std::span<const BoundCall> calls, DeviceProgress& progress,
                 const std::function<void(const BoundCall&)>& begin_alone) override;
  bool begin_in_stream(const BoundCall& bound_call, const Origin& origin, DeviceProgress& progress) override;
  void mark_end(const BoundCall& bound_call, DeviceProgress& progress) override;
  bool has_reached(DeviceProgress& progress) override;
  void wait(DeviceProgress& progress, const Origin& origin) override;

  int packing_device(const CallRequest& whole, std::span<const CallRequest> tensors,
                     const std::function<std::shared_ptr<const Plan>()>& plan) override;
  StagingBuffer scratch(int device, std::size_t bytes) override { return streams_.scratch(device, bytes); }

  void abort() noexcept override;
  void end() noexcept override;
  void keep_memory() override;

 private:
  bool may_query(const CallRequest& request, const Spec& spec, QueryRule query_rule) const;
  // Finds the path of the call, which members decide together the first time.
  void find_path(const BoundCall& bound_call);
  void refuse_if_captured(const BoundCall& bound_call);
  bool joins(const BoundCall& bound_call);
  void run_levels(const BoundCall& bound_call, const StreamMarks& behind);
  bool works_on(int device, const CallRequest& whole, const Plan& plan) const;

  CommunicatorMember& member_;
  GpuArrangement arrangement_;
  GpuStreams streams_;
  DeviceVotes votes_;
  std::vector<nccl::NcclCall> joined_;  // Holds calls started at once that NCCL does as one operation.
};

}  // namespace lockstep::detail
