// SPDX-License-Identifier: Apache-2.0
// Describes one call for the engine: a plan with its buffers and options. Also names the line of a call for people.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/node/scattered_buffer.hpp"
#include "collectives/origin.hpp"
#include "collectives/plan.hpp"
#include "collectives/user_reduce.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Returns "step.cpp:12", for instance; empty if the line is not known.
inline std::string place(const Origin& origin) {
  return origin.line > 0 ? text(origin.file, ':', origin.line) : std::string();
}

// Returns the same for one line in all programs, or 0 if the line is not known. Builds spell the path of a file in
// different ways (x.cpp, ./x.cpp, a/../a/x.cpp), so only its base name counts.
inline std::uint64_t fingerprint_of(const Origin& origin) {
  if (origin.line <= 0) return 0;
  const std::string_view path = origin.file;
  const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it if there is no folder
  return Fingerprint().add(name).add(static_cast<std::uint64_t>(origin.line)).value();
}

// Names the GPU stream that orders a call with the program's other work. If GPUs keep that order themselves, the host
// does not wait for the stream.
struct CallStream {
  gpu::Stream stream = nullptr;
  int device = 0;
};

struct DeviceBuffers;  // collectives/engine/device_copy_pipeline.hpp

// Names the GPUs that hold a call's buffers. -1 means host memory, or that the location is not known yet.
struct BufferDevices {
  int input = -1;
  int output = -1;
};

// Holds everything that the engine needs to run one call. The caller owns the buffers and keeps them until the end.
struct Call {
  std::shared_ptr<const Plan> plan;
  const void* input = nullptr;
  void* output = nullptr;
  const Kernel* kernel = nullptr;  // null: no reduction, or the user's own
  UserReduce user = {};
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
  Origin origin = {};
  Duration limit = {};  // longest wait for other ranks; zero: the engine's own limit
};

}  // namespace lockstep
