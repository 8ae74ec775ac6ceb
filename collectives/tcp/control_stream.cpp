// SPDX-License-Identifier: Apache-2.0
// Sends and receives frames: control messages, short messages, and the offers, requests and data of long ones.
#include "collectives/tcp/control_stream.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::tcp {
namespace {

constexpr std::size_t max_whole_bytes = 64U << 10U;  // longer messages are offered first
constexpr std::size_t max_control_bytes = 16U << 20U;
constexpr std::size_t discard_bytes = 4096;  // bytes thrown away at once

}  // namespace

void ControlStream::post_control(Bytes message) {
  const FrameHeader frame{FrameKind::control, 0, 0, message.size()};
  put(frame, std::move(message));
}

void ControlStream::post_send(const PostedSend& sending) {
  if (sending.head.bytes <= max_whole_bytes) {
    outgoing_.push_back(
        {{FrameKind::whole, 0, sending.head.call_tag, sending.head.bytes}, {}, sending.from, sending.left});
    return;
  }
  offered_.push_back({++last_number_, sending});
  put({FrameKind::offer, last_number_, sending.head.call_tag, sending.head.bytes}, {});
}

void ControlStream::post_receive(const PostedReceive& want) {
  const auto here = std::ranges::find_if(
      unexpected_, [&](const UnexpectedMessage& each) { return each.frame.call_tag == want.call_tag; });
  if (here == unexpected_.end()) {
    receives_.push_back(want);
    return;
  }
  UnexpectedMessage early = std::move(*here);
  unexpected_.erase(here);
  match(want, early);
}

void ControlStream::arrived(UnexpectedMessage early) {
  const auto wanted = std::ranges::find(receives_, early.frame.call_tag, &PostedReceive::call_tag);
  if (wanted == receives_.end()) {
    unexpected_.push_back(std::move(early));
    return;
  }
  const PostedReceive want = *wanted;
  receives_.erase(wanted);
  match(want, early);
}

void ControlStream::match(const PostedReceive& want, UnexpectedMessage& early) {
  if (early.frame.bytes != want.bytes) {
    if (!length_mismatch_) length_mismatch_ = LengthMismatch{early.frame.bytes, want.bytes};
    return;
  }
  if (early.frame.kind == FrameKind::offer) {
    granted_.push_back({early.frame.number, want});
    put({FrameKind::grant, early.frame.number, 0, 0}, {});
    return;
  }
  if (want.bytes > 0) std::memcpy(want.into, early.here.data(), want.bytes);
  --want.left->receives;
}

// Sends no message that was given up meanwhile; the rank that waits for it learns the reason.
void ControlStream::grant(std::uint32_t number) {
  const auto found = std::ranges::find(offered_, number, &OfferedSend::number);
  if (found == offered_.end()) return;
  const PostedSend& sending = found->sending;
  outgoing_.push_back(
      {{FrameKind::data, number, sending.head.call_tag, sending.head.bytes}, {}, sending.from, sending.left});
  offered_.erase(found);
}

void ControlStream::begin_body() {
  std::memcpy(&header_, header_bytes_.data(), sizeof header_);
  header_bytes_.clear();
  is_in_body_ = true;
  received_ = 0;
  into_ = nullptr;
  body_.clear();
  switch (header_.kind) {
    case FrameKind::control:
    case FrameKind::whole:
      is_wrong_ = header_.bytes > (header_.kind == FrameKind::control ? max_control_bytes : max_whole_bytes);
      if (!is_wrong_) body_.resize(header_.bytes);
      break;
    case FrameKind::data: {
      const auto granted = std::ranges::find(granted_, header_.number, &GrantedReceive::number);
      is_wrong_ = granted == granted_.end() || granted->want.bytes != header_.bytes;
      if (!is_wrong_) into_ = granted->want.into;
      break;
    }
    case FrameKind::offer:
    case FrameKind::grant:
    case FrameKind::farewell:
      break;
    default:
      is_wrong_ = true;
  }
}

void ControlStream::end_body(std::vector<Bytes>& messages) {
  is_in_body_ = false;
  switch (header_.kind) {
    case FrameKind::control:
      messages.push_back(std::move(body_));
      body_ = {};
      break;
    case FrameKind::whole:
    case FrameKind::offer:
      arrived({header_, std::move(body_)});
      body_ = {};
      break;
    case FrameKind::grant:
      grant(header_.number);
      break;
    case FrameKind::data: {
      const auto granted = std::ranges::find(granted_, header_.number, &GrantedReceive::number);
      if (granted->want.into != nullptr) --granted->want.left->receives;
      granted_.erase(granted);
      break;
    }
    case FrameKind::farewell:
      has_farewell_ = true;
  }
}

ControlStream::ControlProgress ControlStream::receive(std::vector<Bytes>& messages) {
  while (is_open()) {
    IoResult moved;
    if (!is_in_body_) {
      const std::size_t before = header_bytes_.size();
      header_bytes_.resize(sizeof(FrameHeader));
      moved = socket_.read(std::span(header_bytes_).subspan(before));
      header_bytes_.resize(before + moved.bytes);
      if (header_bytes_.size() == sizeof(FrameHeader)) begin_body();
      if (is_wrong_) return {true, EPROTO};
    }
    const bool has_body =
        header_.kind == FrameKind::control || header_.kind == FrameKind::whole || header_.kind == FrameKind::data;
    const std::size_t all = has_body ? header_.bytes : 0;
    if (is_in_body_ && received_ < all) {
      std::array<std::byte, discard_bytes> nowhere;
      std::span<std::byte> into(nowhere.data(), std::min(nowhere.size(), all - received_));
      if (header_.kind != FrameKind::data) into = std::span(body_).subspan(received_);
      if (into_ != nullptr) into = {into_ + received_, all - received_};
      moved = socket_.read(into);
      received_ += moved.bytes;
    }
    if (is_in_body_ && received_ == all) {
      end_body(messages);
      continue;
    }
    if (moved.error == EFAULT && into_ != nullptr) return {true, EFAULT, unwritable()};
    if (moved.bytes == 0) return {moved.is_over, moved.error};
  }
  return {};
}

BadMemory ControlStream::unwritable() const {
  const PostedReceive& want = std::ranges::find(granted_, header_.number, &GrantedReceive::number)->want;
  return {want.into, want.bytes, Access::write, want.left};
}

ControlStream::ControlProgress ControlStream::flush() {
  while (is_open() && !outgoing_.empty()) {
    OutgoingFrame& first = outgoing_.front();
    const std::size_t of_frame = std::min(sent_, sizeof(FrameHeader));
    const std::size_t of_payload = sent_ - of_frame;
    std::array<iovec, 2> parts = {
        iovec{reinterpret_cast<std::byte*>(&first.frame) + of_frame, sizeof(FrameHeader) - of_frame},
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
        iovec{const_cast<std::byte*>(first.data()) + of_payload, first.payload() - of_payload}};
    const IoResult moved = socket_.write(parts);
    if (moved.error == EFAULT && first.from != nullptr)
      return {true, EFAULT, BadMemory{first.from, first.payload(), Access::read, first.left}};
    if (moved.is_over) return {true, moved.error};
    sent_ += moved.bytes;
    if (sent_ < sizeof(FrameHeader) + first.payload()) return {};
    sent_ = 0;
    if (first.left != nullptr) --first.left->sends;
    outgoing_.pop_front();
  }
  return {};
}

void ControlStream::drop_posted() {
  receives_.clear();
  offered_.clear();
  for (GrantedReceive& each : granted_) each.want.into = nullptr;
  into_ = nullptr;
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    OutgoingFrame& each = outgoing_[i];
    each.left = nullptr;
    if (each.from == nullptr) continue;
    each.own.assign(each.from, each.from + each.frame.bytes);
    each.from = nullptr;
  }
}

std::pair<Descriptor, Bytes> ControlStream::release() {
  Bytes rest;
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    const auto* const frame = reinterpret_cast<const std::byte*>(&outgoing_[i].frame);
    rest.insert(rest.end(), frame, frame + sizeof(FrameHeader));
    rest.insert(rest.end(), outgoing_[i].data(), outgoing_[i].data() + outgoing_[i].payload());
  }
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(sent_));
  return {socket_.release(), std::move(rest)};
}

}  // namespace lockstep::tcp
