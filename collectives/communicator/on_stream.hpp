// SPDX-License-Identifier: Apache-2.0
// Calls collectives in the order of a GPU's stream: `world.on(stream).all_reduce(gradient, sum)`. So a program need not
// wait for its kernels before each call.
#pragma once

#include "collectives/communicator/collectives.hpp"

namespace lockstep {

// Calls collectives of a communicator, which must outlive this object. A call runs after the work that is in the stream
// and before later work. If GPUs run it without the host, the call returns at once. A Request can still be waited for.
class StreamCollectives : public Collectives<StreamCollectives> {
 public:
  // Shares `core`. The program keeps the stream and must not destroy it before this object's calls are done.
  StreamCollectives(std::shared_ptr<detail::CommunicatorCore> core, gpu::Stream stream)
      : core_(std::move(core)), stream_(stream) {}

  // Return this member's rank and the number of members.
  int rank() const;
  int size() const;

 private:
  friend class Collectives<StreamCollectives>;
  friend class Batch;

  // Returns the request with this object's stream.
  detail::CallRequest ordered(detail::CallRequest request) const;
  void run(const detail::CallRequest& request);
  Request begin(const detail::CallRequest& request);
  PreparedCall prepare(const detail::CallRequest& request);

  std::shared_ptr<detail::CommunicatorCore> core_;
  gpu::Stream stream_;
};

}  // namespace lockstep
