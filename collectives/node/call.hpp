// SPDX-License-Identifier: Apache-2.0
// A plan with memory: what the engine runs. And what names an operation for people.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/node/scattered_buffer.hpp"
#include "collectives/plan.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// A line of the user's program.
struct Origin {
  const char* file = "";
  int line = 0;
  static constexpr Origin here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// "step.cpp:12"; empty where it is not known.
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

// The user's own reduction: target[i] = left[i] op right[i]; the target may be exactly left or right.
struct UserReduce {
  static constexpr std::size_t state_bytes = 48;
  void (*apply)(const void* state, void* target, const void* left, const void* right, std::size_t count) = nullptr;
  alignas(std::max_align_t) std::array<std::byte, state_bytes> state = {};  // a copy of what the function captured
  bool has_state = false;
};

// The stream of a GPU in which a call has its place: the host does not wait for it where GPUs see to the order.
struct CallStream {
  gpu::Stream stream = nullptr;
  int device = 0;
};

struct DeviceBuffers;  // collectives/engine/device_copy_pipeline.hpp

// The GPUs whose memory the buffers of a call are in; -1: the host's, or nobody has looked.
struct BufferDevices {
  int input = -1;
  int output = -1;
};

struct Call {
  std::shared_ptr<const Plan> plan;
  const void* input = nullptr;
  void* output = nullptr;
  const Kernel* kernel = nullptr;  // of reductions, unless the user's own
  UserReduce user = {};
  double factor = 1;  // premul_sum: of this member
  // premul_sum, avg: who copies the data in and out multiplies, or divides, on the way; the call itself is a sum.
  bool is_plain_sum = false;
  // Instead of input and output, of an all_reduce in place that is done in the node.
  std::shared_ptr<const ScatteredBuffer> pieces = {};
  std::optional<CallStream> stream = {};
  // The data that input and output stand for, where rounds work on pieces of it as they come from a GPU.
  std::shared_ptr<const DeviceBuffers> device_buffers = {};
  BufferDevices devices = {};  // when it was started, if that may be long before it begins
  Origin origin = {};
  Duration limit = {};  // how long it may wait for others; zero: as the engine was told
};

}  // namespace lockstep
