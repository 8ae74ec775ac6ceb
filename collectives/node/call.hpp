// SPDX-License-Identifier: Apache-2.0
// Describes one call for the engine: a plan with its buffers and options.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/kernels/copy.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/node/scattered_buffer.hpp"
#include "collectives/origin.hpp"
#include "collectives/plan.hpp"
#include "collectives/user_reduce.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Names the GPU stream that orders a call with the program's other work. If GPUs keep that order themselves, the host
// does not wait for the stream.
struct CallStream {
  gpu::Stream stream = nullptr;
  int device = 0;
};

// Replaces copies in rounds and in reductions of one source, for simulations, which count them. Programs leave it null.
struct CopyReplacement {
  void (*copy)(void* state, void* to, const void* from, std::size_t bytes) = nullptr;
  void* state = nullptr;
};

struct DeviceBuffers;  // collectives/engine/device_copy_pipeline.hpp

// Names the GPUs that hold a call's buffers. -1 means host memory, or that the location is not known yet.
struct BufferDevices {
  int input = -1;
  int output = -1;
  bool has_any() const { return input >= 0 || output >= 0; }
};

// Holds everything that the engine needs to run one call. The caller owns the buffers and keeps them until the end.
struct Call {
  std::shared_ptr<const Plan> plan;
  const void* input = nullptr;
  void* output = nullptr;
  const Kernel* kernel = nullptr;  // null: no reduction, or the user's own
  UserReduce user = {};
  CopyReplacement copy_replacement = {};
  double factor = 1;  // this rank's own, for premul_sum
  // True if the copies into and out of staging memory multiply or divide for premul_sum or avg. The call itself is then
  // a plain sum.
  bool is_plain_sum = false;
  // Replaces input and output for an in-place all_reduce of several tensors within the node. Null otherwise.
  std::shared_ptr<const ScatteredBuffer> pieces = {};
  std::optional<CallStream> stream = {};
  // Describes the GPU buffers for which input and output stand in, if rounds work on pieces as they arrive from a GPU.
  // Null otherwise.
  std::shared_ptr<const DeviceBuffers> device_buffers = {};
  BufferDevices devices = {};  // as of the start, if the call may begin much later
  bool is_on_host = false;     // the caller knows that no buffer is on a GPU
  Origin origin = {};
  Duration limit = {};  // longest wait for other ranks; zero: the engine's own limit

  // True if two such calls of one plan differ only in their buffers, their origin and their limit.
  bool has_only_buffers() const {
    return user.apply == nullptr && !is_plain_sum && pieces == nullptr && device_buffers == nullptr && !stream &&
           !devices.has_any() && plan->spec.op != ReduceOp::premul_sum;
  }
  // Copies bytes between two places that do not overlap.
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (copy_replacement.copy != nullptr)
      copy_replacement.copy(copy_replacement.state, to, from, bytes);
    else
      copy_bytes(to, from, bytes);
  }
};

}  // namespace lockstep
