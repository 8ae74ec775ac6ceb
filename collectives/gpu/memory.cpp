// SPDX-License-Identifier: Apache-2.0
// Allocates memory of a GPU after a check of the device and the size.
#include "collectives/gpu/memory.hpp"

#include <limits>

#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

std::shared_ptr<std::byte> allocate(int device, std::size_t count, std::size_t element_bytes) {
  DeviceBackend* const gpus = backend();
  if (gpus == nullptr)
    throw Error(Code::device, text("memory of GPU ", device, " was asked for, but ", why_none()),
                "use memory of the host, or start it where there is a GPU");
  if (device < 0 || device >= gpus->devices())
    throw Error(Code::device,
                text("memory of GPU ", device, " was asked for; this process sees ", gpus->devices(), ", from 0 on"),
                "CUDA_VISIBLE_DEVICES says which ones it sees");
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes) || bytes > std::numeric_limits<std::size_t>::max() / 2)
    throw Error(Code::usage, text(count, " elements of ", element_bytes, " bytes are more than any memory holds"),
                "check that the count was never negative");
  if (bytes == 0) return nullptr;
  return {gpus->allocate(device, bytes), [gpus, device](std::byte* memory) { gpus->free(device, memory); }};
}

void copy(int device, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  backend()->copy(device, {to, 0}, {const_cast<std::byte*>(from), 0}, bytes, 1);
}

void refuse_count(std::size_t given, std::size_t here) {
  throw Error(Code::usage, text("a copy of ", given, " elements to or from a DeviceVector of ", here),
              "give as many; span().first(n) is a part of it");
}

}  // namespace lockstep::gpu
