// SPDX-License-Identifier: Apache-2.0
// Declares the path by which GPUs run calls. It is all that the core of a communicator knows of GPUs. The build
// links make_device_path.cpp, which returns a GpuPath, or no_device_path.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator/bound_call.hpp"
#include "collectives/communicator/call_request.hpp"
#include "collectives/spec.hpp"

namespace lockstep {

struct CommunicatorOptions;
struct Plan;
namespace gpu {
class StreamMark;
}  // namespace gpu

namespace detail {

class CommunicatorFactory;
class CommunicatorMember;

// Selects the calls for which members ask each other where their data is. Plans use `once`: they always ask, at their
// first start.
enum class QueryRule : std::uint8_t { never, if_large, at_first_start };

using StreamMarks = std::vector<std::shared_ptr<gpu::StreamMark>>;

// Describes a call that GPUs may run. The path keeps more about it.
struct DeviceCall {
  DeviceCall() = default;
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;
  virtual ~DeviceCall() = default;

  std::function<BoundCall()> make_host_call;
  std::optional<BoundCall> host_call;  // Is made when it is needed.
  // Name the algorithm and the reason for people, if GPUs run the call.
  const std::string* algorithm = nullptr;
  const std::string* why = nullptr;
};

// Holds the state of a call that is under way in streams of GPUs.
struct DeviceProgress {
  StreamMarks marks;       // Mark the call's work in the streams.
  StreamMarks behind;      // Mark the work before the call, unless that is in the default stream.
  bool in_stream = false;  // True if the program gave the stream, so that the host need not wait.

  void clear() {
    marks.clear();
    behind.clear();
    in_stream = false;
  }
};

// Is a request with the Spec that its check gave.
struct CheckedRequest {
  CallRequest request;
  Spec spec;
};

// Runs calls of one communicator on GPUs. One thread uses it at a time. Its functions throw Error; they have told the
// other members then.
class DevicePath {
 public:
  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

  DevicePath() = default;
  DevicePath(const DevicePath&) = delete;
  DevicePath& operator=(const DevicePath&) = delete;
  virtual ~DevicePath() = default;

  // Returns the size in bytes from which members may ask each other where the data of a call is; `never` if GPUs run
  // no call. It is equal on all members.
  std::size_t query_bytes() const { return query_bytes_; }

  // Returns the call for GPUs. Returns null if the host runs the call. The caller sets make_host_call.
  virtual std::shared_ptr<DeviceCall> bind(const CallRequest& request, const Spec& spec, QueryRule query_rule) = 0;
  // Does the same for several calls that GPUs may run as one operation. `whole` has the elements of all of them.
  virtual std::shared_ptr<DeviceCall> bind_all(std::span<const CheckedRequest> requests,
                                               const CheckedRequest& whole) = 0;
  // Gives `call` the path that members chose for `earlier`, without a new vote.
  virtual void decide_as(DeviceCall& call, const DeviceCall& earlier, const Origin& origin) = 0;
  // Gives `call` the path of data in the memory of GPU `device`, on which the members have agreed.
  virtual void decide_on(DeviceCall& call, int device, const Origin& origin) = 0;

  // Starts a call that has `gpus`, after a vote of the members if it is the first time. Returns false if the host runs
  // the call; `host_call` is there then.
  virtual bool begin(const BoundCall& bound_call, DeviceProgress& progress) = 0;
  // Starts several calls: those for NCCL as one operation, and the others by `begin_alone`.
  virtual void begin_all(std::span<const BoundCall> calls, DeviceProgress& progress,
                         const std::function<void(const BoundCall&)>& begin_alone) = 0;
  // Orders a call of the host behind its stream and behind `progress.behind`. Returns true if it has run the call,
  // because the members keep the stream's order.
  virtual bool begin_in_stream(const BoundCall& bound_call, const Origin& origin, DeviceProgress& progress) = 0;
  // Marks the end of a call in which members keep the stream's order, for a Request.
  virtual void mark_end(const BoundCall& bound_call, DeviceProgress& progress) = 0;
  // True if the streams have reached all marks.
  virtual bool has_reached(DeviceProgress& progress) = 0;
  virtual void wait(DeviceProgress& progress, const Origin& origin) = 0;

  // Returns the GPU that should hold packed tensors, or gpu::MemoryLocation::host. Members may differ. `plan`
  // plans the call of all tensors.
  virtual int packing_device(const CallRequest& whole, std::span<const CallRequest> tensors,
                             const std::function<std::shared_ptr<const Plan>()>& plan) = 0;
  // Returns scratch memory of a GPU, which is kept for reuse after the caller has released it.
  virtual StagingBuffer scratch(int device, std::size_t bytes) = 0;

  // Ends work of a failed communicator that would wait for a missing member.
  virtual void abort() noexcept = 0;
  // Waits for unfinished work, unless something has failed.
  virtual void end() noexcept = 0;
  // Keeps memory that messages may still use.
  virtual void keep_memory() = 0;

 protected:
  std::size_t query_bytes_ = never;
};

// True if this member could run calls on GPUs.
bool has_device_path(const CommunicatorOptions& options);
// Makes the path of a communicator. Its parts outlive the path.
std::unique_ptr<DevicePath> make_device_path(CommunicatorMember& member, CommunicatorFactory& factory);

}  // namespace detail
}  // namespace lockstep
