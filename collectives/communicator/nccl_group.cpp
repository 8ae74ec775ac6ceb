// SPDX-License-Identifier: Apache-2.0
// Makes and ends NCCL's communicator, and starts calls in it.
#include "collectives/communicator/nccl_group.hpp"

#include <algorithm>
#include <exception>

#include "collectives/communicator/gpu_wait.hpp"
#include "collectives/communicator/joint_setup.hpp"

namespace lockstep::detail {

void NcclGroup::join(int device, const Origin& origin) {
  or_break(members_, [&] {
    nccl::NcclId id{};
    JointSetup(members_).in_exchange([&] {
      if (members_.rank() == 0) id = nccl::library()->make_id();
      std::ranges::copy(members_.exchange().broadcast("id of the NCCL group", id, 0), id.begin());
    });
    GpuWait pause(members_, "setting up NCCL", origin);
    communicator_ = std::make_unique<nccl::NcclCommunicator>(*nccl::library(), id, members_.size(), members_.rank(),
                                                             device, std::ref(pause));
  });
}

void NcclGroup::begin(std::span<const nccl::NcclCall> steps, const BoundCall& bound_call, DeviceProgress& progress) {
  or_break(members_, [&] {
    const gpu::Stream stream = bound_call.stream ? *bound_call.stream : communicator_->stream_after(progress.behind);
    GpuWait pause(members_, "", bound_call.call.origin, &steps.front().spec);
    if (auto mark = communicator_->begin(steps, stream, std::ref(pause))) progress.marks.push_back(std::move(mark));
    progress.in_stream = bound_call.stream.has_value();
  });
}

void NcclGroup::wait_until_idle(const Origin& origin) {
  GpuWait pause(members_, "GPU work before a call", origin);
  while (communicator_ && communicator_->is_working()) {
    communicator_->check();
    pause();
  }
}

void NcclGroup::end() noexcept {
  if (!communicator_) return;
  try {
    if (!members_.engine().failed() && std::uncaught_exceptions() == 0) {
      GpuWait pause(members_, "GPU work", {});
      communicator_->end(std::ref(pause));
    } else {  // A member that ends in good order waits for the work of all.
      members_.engine().refuse(Error(Code::peer_failed, "it left with GPU work outstanding", "see its own error"));
    }
  } catch (const std::exception& error) {
    members_.engine().log().error(text("while ending NCCL for \"", members_.options().name, "\": ", error.what()));
  }
  communicator_.reset();
}

}  // namespace lockstep::detail
