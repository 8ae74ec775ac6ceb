// SPDX-License-Identifier: Apache-2.0
// The collectives of a communicator in the order of a stream of a GPU: `world.on(stream).all_reduce(gradient, sum)`.
#pragma once

#include "collectives/communicator/collectives.hpp"

namespace lockstep {

// Of a communicator that lives as long. What is called comes after what is in the stream, and before what is put there
// later. Where GPUs do it by themselves the call returns at once; a Request may be waited for all the same.
class StreamCollectives : public Collectives<StreamCollectives> {
 public:
  StreamCollectives(std::shared_ptr<detail::CommunicatorCore> core, gpu::Stream stream)
      : core_(std::move(core)), stream_(stream) {}

  int rank() const { return core_->rank(); }
  int size() const { return core_->size(); }

 private:
  friend class Collectives<StreamCollectives>;
  friend class Batch;

  detail::CallRequest ordered(detail::CallRequest request) const {
    request.stream = stream_;
    return request;
  }
  void run(const detail::CallRequest& request) { core_->run(ordered(request)); }
  Request begin(const detail::CallRequest& request) { return {core_, core_->start(ordered(request))}; }
  PreparedCall prepare(const detail::CallRequest& request) { return {core_, core_->prepare(ordered(request))}; }

  std::shared_ptr<detail::CommunicatorCore> core_;
  gpu::Stream stream_;
};

}  // namespace lockstep
