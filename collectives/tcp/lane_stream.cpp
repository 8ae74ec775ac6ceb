// SPDX-License-Identifier: Apache-2.0
// Moves the messages of a lane through its socket, directly from and to the memory of the caller.
#include "collectives/tcp/lane_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::tcp {

void LaneStream::drop_posted() {
  receives_.clear();
  sends_.clear();
}

std::size_t LaneStream::take_kept(std::span<std::byte> into) {
  const std::size_t bytes = std::min(into.size(), kept_.size());
  std::copy_n(kept_.begin(), bytes, into.begin());
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return bytes;
}

IoResult LaneStream::read_some(std::span<std::byte> into) {
  if (const std::size_t bytes = take_kept(into); bytes > 0) return {bytes};
  return socket_.read(into);
}

// Takes bytes that were read: the rest of a header, and perhaps part of its message. Returns false if the message
// belongs to another call or has another length.
bool LaneStream::begin_message(std::span<const std::byte> bytes, LaneProgress& outcome) {
  const std::size_t of_head = std::min(bytes.size(), head_.size() - head_bytes_);
  std::copy_n(bytes.begin(), of_head, head_.begin() + static_cast<std::ptrdiff_t>(head_bytes_));
  head_bytes_ += of_head;
  if (head_bytes_ < head_.size()) return true;
  const std::span<const std::byte> rest = bytes.subspan(of_head);
  LaneHeader head;
  std::memcpy(&head, head_.data(), sizeof head);
  const PostedReceive& want = receives_.front();
  if (head.call_tag != want.call_tag || head.bytes != want.bytes) {
    kept_.insert(kept_.begin(), rest.begin(), rest.end());
    outcome.has_other_length = head.call_tag == want.call_tag;
    outcome.length = head.bytes;
    outcome.wanted = want.bytes;
    is_stuck_ = true;
    return false;
  }
  is_stuck_ = false;
  in_message_ = true;
  received_ = rest.size();
  if (!rest.empty()) std::memcpy(want.into, rest.data(), rest.size());
  return true;
}

// A thread that sleeps until a large message is here need not wake up for each packet.
void LaneStream::wake_from(std::size_t missing) {
  constexpr std::size_t many = 64U << 10U;
  const int from = missing >= 2 * many ? static_cast<int>(many) : 1;
  if (std::exchange(wakes_from_, from) == from) return;
  static_cast<void>(::setsockopt(socket().get(), SOL_SOCKET, SO_RCVLOWAT, &from, sizeof from));
}

// Reads a header together with its message if that is small. It reads no more than is wanted, so nothing comes too
// early.
LaneStream::LaneProgress LaneStream::receive(Window window) {
  LaneProgress outcome;
  if (is_stuck_ && is_receiving()) {  // another receive may want it now
    is_stuck_ = false;
    if (head_bytes_ == head_.size() && !begin_message({}, outcome)) return outcome;
  }
  while (is_receiving()) {
    const PostedReceive& want = receives_.front();
    if (in_message_ && received_ == want.bytes) {
      in_message_ = false;
      head_bytes_ = 0;
      --want.left->receives;
      receives_.pop_front();
      outcome.moved = true;
      continue;
    }
    IoResult moved;
    if (in_message_) {
      moved = read_some({want.into + received_, want.bytes - received_});
      received_ += moved.bytes;
    } else {
      const std::size_t head_left = head_.size() - head_bytes_;
      const std::size_t all = head_left + (want.bytes <= window.size() - head_.size() ? want.bytes : 0);
      moved = read_some(window.first(all));
      if (moved.bytes > 0 && !begin_message(window.first(moved.bytes), outcome)) return outcome;
    }
    outcome.moved = outcome.moved || moved.bytes > 0;
    if (moved.bytes > 0) continue;
    outcome.is_over = moved.is_over;
    outcome.error = moved.error;
    if (moved.error == EFAULT && in_message_) outcome.bad = BadMemory{want.into, want.bytes, Access::write, want.left};
    if (!moved.is_over) wake_from(in_message_ ? want.bytes - received_ : 0);
    break;
  }
  return outcome;
}

// Finds the send with bad memory among those that were written at once; the first one if none is known to be bad.
BadMemory LaneStream::unreadable() const {
  const PostedSend* bad = &sends_.front();
  for (std::size_t i = sends_.size(); i-- > 0;) {
    if (!is_mapped(sends_[i].from, sends_[i].head.bytes, Access::read)) bad = &sends_[i];
  }
  return {bad->from, bad->head.bytes, Access::read, bad->left};
}

LaneStream::LaneProgress LaneStream::flush() {
  LaneProgress outcome;
  while (is_sending()) {
    constexpr std::size_t most = 8;  // messages at once
    std::array<iovec, 2 * most> parts;
    std::size_t count = 0;
    std::size_t skip = sent_;
    std::size_t wanted = 0;
    const auto add = [&](const void* from, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes == skipped) return;
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
      parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(from) + skipped), bytes - skipped};
      wanted += bytes - skipped;
    };
    for (std::size_t i = 0; i < std::min(most, sends_.size()); ++i) {
      add(&sends_[i].head, sizeof(LaneHeader));
      add(sends_[i].from, sends_[i].head.bytes);
    }
    const IoResult moved = socket_.write({parts.data(), count});
    outcome.moved = outcome.moved || moved.bytes > 0;
    outcome.is_over = moved.is_over;
    outcome.error = moved.error;
    if (moved.error == EFAULT) outcome.bad = unreadable();
    for (sent_ += moved.bytes; is_sending() && sent_ >= sizeof(LaneHeader) + sends_.front().head.bytes;) {
      sent_ -= sizeof(LaneHeader) + sends_.front().head.bytes;
      --sends_.front().left->sends;
      sends_.pop_front();
    }
    if (moved.bytes < wanted) break;
  }
  return outcome;
}

}  // namespace lockstep::tcp
