// SPDX-License-Identifier: Apache-2.0
// Makes a stream when it is first needed, and frees it with its last holder.
#include "collectives/gpu/copy_streams.hpp"

#include <algorithm>

namespace lockstep::gpu {

void CopyStreams::begin(int down_from, int up_to) {
  if (down_from != MemoryLocation::host) backend()->come_after_default(down_from, down(down_from));
  if (up_to != MemoryLocation::host) backend()->come_after_default(up_to, up(up_to));
}

const std::shared_ptr<void>& CopyStreams::of(int device, std::size_t way) {
  const std::size_t at = 2 * static_cast<std::size_t>(device) + way;
  streams_.resize(std::max(streams_.size(), at + 1));
  if (streams_[at] == nullptr) {
    DeviceBackend* const gpus = backend();
    streams_[at] = {gpus->make_stream(device), [gpus, device](Stream stream) { gpus->end_stream(device, stream); }};
  }
  return streams_[at];
}

}  // namespace lockstep::gpu
