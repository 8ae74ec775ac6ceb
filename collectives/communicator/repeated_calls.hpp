// SPDX-License-Identifier: Apache-2.0
// Finds repeated calls, so that they are not checked and planned again.
//
// A CommunicatorCore owns it and asks it first in each call that is not prepared. It is on the way of the smallest
// calls: a hit costs a hash and some comparisons, and allocates nothing.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/node/call.hpp"

namespace lockstep::detail {

// Keeps calls with the values that tell them from other calls. It owns no buffers.
class RepeatedCalls {
 public:
  // Holds a call that was made before.
  struct RepeatedCall {
    Collective collective = Collective::sendrecv;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    Order order = Order::fast;
    int root = 0;
    bool in_place = false;
    std::uintptr_t distance = 0;  // of the input behind the output, in bytes; wraps around
    std::size_t element_bytes = 0;
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    std::uint64_t subject = 0;
    Call call;
  };
  struct Match {
    // Points to the call with the request's buffers; null if no equal call was made before.
    const Call* call = nullptr;
    // Points to the entry in which to remember the call; null if it is known, or must be checked each time.
    RepeatedCall* place = nullptr;
  };

  explicit RepeatedCalls(const DevicePath& device_path) : device_path_(device_path) {}

  // Finds the equal call that was made before. `subject` is a hash of the call's subject. Calls for which members ask
  // each other where the data is are never kept.
  Match find(const CallRequest& request, std::uint64_t subject);
  // Keeps the checked and planned call of the request.
  static void remember(RepeatedCall& place, const CallRequest& request, std::uint64_t subject, const Call& call);
  // Forgets all calls, because they hold the timeout.
  void clear() { calls_ = {}; }

 private:
  RepeatedCall* place_for(const CallRequest& request, std::uint64_t subject);

  const DevicePath& device_path_;
  std::array<RepeatedCall, 16> calls_;
};

}  // namespace lockstep::detail
