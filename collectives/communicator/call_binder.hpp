// SPDX-License-Identifier: Apache-2.0
// Checks and plans requests.
//
// A CommunicatorCore owns it. One thread at a time uses it. All members bind the same calls, so a plan needs no
// message.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "collectives/communicator/call_staging.hpp"
#include "collectives/communicator/call_subject.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/communicator/partition_cache.hpp"

namespace lockstep::detail {

// Makes a BoundCall of each request of one communicator. All members bind the same requests in the same order. A wrong
// request throws Error usage; that fails the communicator, so that no other member waits in vain.
class CallBinder {
 public:
  CallBinder(CommunicatorMember& member, DevicePath& device_path) : member_(member), device_path_(device_path) {}

  // Checks and plans a call. Code inside another call may use it.
  BoundCall bind(const CallRequest& request, QueryRule query_rule);
  // Does so for a call that is started many times. Its data must stay where it is.
  BoundCall prepare(const CallRequest& request);
  // Prepares several calls that GPUs may run as one operation. `whole` has the elements of all of them, and
  // `make_host_call` makes the call for the host. Returns an empty BoundCall if GPUs cannot run them.
  BoundCall prepare(std::span<const CallRequest> requests, const CallRequest& whole,
                    std::function<BoundCall()> make_host_call);
  // Gives `bound_call` the path that members chose for `earlier`, without a new vote. Both are the same calls on
  // different memory.
  void decide_as(const BoundCall& bound_call, const BoundCall& earlier, const Origin& origin);
  // Checks a call without planning it.
  void check(const CallRequest& request);

  // Returns the GPU that should hold packed tensors, or gpu::MemoryLocation::host. Members may differ. For
  // `host`, tensors are packed in host memory, which is pinned if a tensor is on a GPU.
  int packing_device(const CallRequest& whole, std::span<const CallRequest> tensors);
  // Returns memory for packed tensors: of that GPU, or of the host if it is gpu::MemoryLocation::host, pinned for GPUs.
  StagingBuffer packing_memory(int device, std::size_t bytes, bool is_pinned);
  const CallStaging& staging() const { return staging_; }

  // Sets the subject of this member's later calls. See ScopedCallSubject.
  void set_subject(const CallSubject& subject);
  const CallSubject& subject() const { return subject_; }
  // Returns a hash of the subject; 0 if that is empty.
  std::uint64_t subject_key() const { return subject_key_; }

 private:
  // Returns the request with this communicator's order and wire format.
  CallRequest with_options(CallRequest request) const;
  // Checks a request, and returns it with the fingerprints that members compare.
  Spec spec_for(const CallRequest& request);
  std::shared_ptr<const Plan> in_stream(const std::shared_ptr<const Plan>& plan);
  void stage(BoundCall& bound_call, const CallRequest& request, QueryRule query_rule) const;

  CommunicatorMember& member_;
  DevicePath& device_path_;
  CallStaging staging_{member_};
  PartitionCache partitions_;
  CallSubject subject_;
  std::uint64_t subject_key_ = 0;
  // Holds a plan, and its form in a stream. It owns both, so that the address in the key stays that plan's.
  struct StreamPlans {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Plan> in_stream;
  };
  std::map<const Plan*, StreamPlans> stream_plans_;
};

}  // namespace lockstep::detail
