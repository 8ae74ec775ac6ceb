// SPDX-License-Identifier: Apache-2.0
// Stands in for make_device_path.cpp in builds without CUDA and without tests: the host runs all calls.
#include "collectives/communicator/communicator_member.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/gpu/memory.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Runs nothing, and refuses streams and memory of GPUs.
class NoDevicePath final : public DevicePath {
 public:
  explicit NoDevicePath(CommunicatorMember& member) : member_(member) {}

  std::shared_ptr<DeviceCall> bind(const CallRequest& /*request*/, const Spec& /*spec*/,
                                   QueryRule /*query_rule*/) override {
    return nullptr;
  }
  std::shared_ptr<DeviceCall> bind_all(std::span<const CheckedRequest> /*requests*/,
                                       const CheckedRequest& /*whole*/) override {
    return nullptr;
  }
  void decide_as(DeviceCall& /*call*/, const DeviceCall& /*earlier*/, const Origin& /*origin*/) override {}
  void decide_on(DeviceCall& /*call*/, int /*device*/, const Origin& /*origin*/) override {}

  bool begin(const BoundCall& /*bound_call*/, DeviceProgress& /*progress*/) override { return false; }
  void begin_all(std::span<const BoundCall> calls, DeviceProgress& /*progress*/,
                 const std::function<void(const BoundCall&)>& begin_alone) override {
    for (const BoundCall& each : calls) begin_alone(each);
  }
  bool begin_in_stream(const BoundCall& bound_call, const Origin& /*origin*/, DeviceProgress& /*progress*/) override {
    if (bound_call.stream.value_or(nullptr) == nullptr) return false;
    const Error error(Code::usage, text("a stream of a GPU was given, but ", gpu::why_none()), "give none, or nullptr");
    member_.refuse(error);
    throw error;
  }
  void mark_end(const BoundCall& /*bound_call*/, DeviceProgress& /*progress*/) override {}
  bool has_reached(DeviceProgress& /*progress*/) override { return true; }
  void wait(DeviceProgress& /*progress*/, const Origin& /*origin*/) override {}

  int packing_device(const CallRequest& /*whole*/, std::span<const CallRequest> /*tensors*/,
                     const std::function<std::shared_ptr<const Plan>()>& /*plan*/) override {
    return gpu::MemoryLocation::host;
  }
  StagingBuffer scratch(int device, std::size_t bytes) override { return gpu::allocate(device, bytes, 1); }
  void abort() noexcept override {}
  void end() noexcept override {}
  void keep_memory() override {}

 private:
  CommunicatorMember& member_;
};

}  // namespace

bool has_device_path(const CommunicatorOptions& /*options*/) { return false; }

std::unique_ptr<DevicePath> make_device_path(CommunicatorMember& member, CommunicatorFactory& /*factory*/) {
  return std::make_unique<NoDevicePath>(member);
}

}  // namespace lockstep::detail
