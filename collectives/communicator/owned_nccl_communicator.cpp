// SPDX-License-Identifier: Apache-2.0
// Makes and ends NCCL's communicator, and starts calls in it.
#include "collectives/communicator/owned_nccl_communicator.hpp"

#include <algorithm>
#include <exception>

#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/communicator/joint_setup.hpp"

namespace lockstep::detail {

void OwnedNcclCommunicator::join(int device, const Origin& origin) {
  or_break(member_, [&] {
    nccl::NcclId id{};
    JointSetup(member_).in_exchange([&] {
      if (member_.rank() == 0) id = nccl::library()->make_id();
      std::ranges::copy(member_.exchange().broadcast("id of the NCCL group", id, 0), id.begin());
    });
    GpuWait pause(member_, "setting up NCCL", origin);
    communicator_ = std::make_unique<nccl::NcclCommunicator>(*nccl::library(), id, member_.size(), member_.rank(),
                                                             device, std::ref(pause));
  });
}

void OwnedNcclCommunicator::begin(std::span<const nccl::NcclCall> steps, const BoundCall& bound_call,
                                  DeviceProgress& progress) {
  or_break(member_, [&] {
    const gpu::Stream stream = bound_call.stream ? *bound_call.stream : communicator_->stream_after(progress.behind);
    GpuWait pause(member_, "", bound_call.call.origin, &steps.front().spec);
    if (auto mark = communicator_->begin(steps, stream, std::ref(pause))) progress.marks.push_back(std::move(mark));
    progress.in_stream = bound_call.stream.has_value();
  });
}

void OwnedNcclCommunicator::wait_until_idle(const Origin& origin) {
  GpuWait pause(member_, "GPU work before a call", origin);
  while (communicator_ && communicator_->is_working()) {
    communicator_->check();
    pause();
  }
}

void OwnedNcclCommunicator::end() noexcept {
  if (!communicator_) return;
  try {
    if (!member_.engine().failed() && std::uncaught_exceptions() == 0) {
      GpuWait pause(member_, "GPU work", {});
      communicator_->end(std::ref(pause));
    } else {  // A member that ends in good order waits for the work of all.
      member_.engine().refuse(Error(Code::peer_failed, "it left with GPU work outstanding", "see its own error"));
    }
  } catch (const std::exception& error) {
    member_.engine().log().error(text("while ending NCCL for \"", member_.options().name, "\": ", error.what()));
  }
  communicator_.reset();
}

}  // namespace lockstep::detail
