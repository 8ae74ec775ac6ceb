// SPDX-License-Identifier: Apache-2.0
// Writes frames, and gives away those that are not yet sent.
#include "collectives/tcp/control_frames.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep::tcp {

ControlProgress FrameQueue::flush(StreamSocket& socket) {
  while (!frames_.empty()) {
    OutgoingFrame& first = frames_.front();
    const std::size_t of_header = std::min(sent_, sizeof(FrameHeader));
    const std::size_t of_payload = sent_ - of_header;
    std::array<iovec, 2> parts = {
        iovec{reinterpret_cast<std::byte*>(&first.header) + of_header, sizeof(FrameHeader) - of_header},
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
        iovec{const_cast<std::byte*>(first.data()) + of_payload, first.payload() - of_payload}};
    const IoResult moved = socket.write(parts);
    if (moved.error == EFAULT && first.from != nullptr)
      return {true, EFAULT, BadMemory{first.from, first.payload(), Access::read, first.left}};
    if (moved.is_over) return {true, moved.error};
    sent_ += moved.bytes;
    if (sent_ < sizeof(FrameHeader) + first.payload()) return {};
    sent_ = 0;
    if (first.left != nullptr) --first.left->sends;
    frames_.pop_front();
  }
  return {};
}

void FrameQueue::drop_posted() {
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    OutgoingFrame& each = frames_[i];
    each.left = nullptr;
    if (each.from == nullptr) continue;
    each.own.assign(each.from, each.from + each.header.bytes);
    each.from = nullptr;
  }
}

Bytes FrameQueue::rest() const {
  Bytes rest;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    const auto* const header = reinterpret_cast<const std::byte*>(&frames_[i].header);
    rest.insert(rest.end(), header, header + sizeof(FrameHeader));
    rest.insert(rest.end(), frames_[i].data(), frames_[i].data() + frames_[i].payload());
  }
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(sent_));
  return rest;
}

}  // namespace lockstep::tcp
