// SPDX-License-Identifier: Apache-2.0
// Receives frames: control messages, short messages, and the offers, requests and data of long ones.
#include "collectives/tcp/control_stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::tcp {
namespace {

constexpr std::size_t max_control_bytes = 16U << 20U;
constexpr std::size_t discard_bytes = 4096;  // bytes thrown away at once

}  // namespace

void ControlStream::post_control(Bytes message) {
  const FrameHeader header{FrameKind::control, 0, 0, message.size()};
  outgoing_.put(header, std::move(message));
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
      is_wrong_ =
          header_.bytes > (header_.kind == FrameKind::control ? max_control_bytes : ExchangeMatcher::max_whole_bytes);
      if (!is_wrong_) body_.resize(header_.bytes);
      break;
    case FrameKind::data: {
      const PostedReceive* const want = exchanges_.requested(header_.number);
      is_wrong_ = want == nullptr || want->bytes != header_.bytes;
      if (!is_wrong_) into_ = want->into;
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
      exchanges_.take_message(header_, std::move(body_));
      body_ = {};
      break;
    case FrameKind::grant:
      exchanges_.grant(header_.number);
      break;
    case FrameKind::data:
      exchanges_.end_data(header_.number);
      break;
    case FrameKind::farewell:
      has_farewell_ = true;
  }
}

ControlProgress ControlStream::receive(std::vector<Bytes>& messages) {
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
    if (moved.error == EFAULT && into_ != nullptr) {
      const PostedReceive& want = *exchanges_.requested(header_.number);
      return {true, EFAULT, BadMemory{want.into, want.bytes, Access::write, want.left}};
    }
    if (moved.bytes == 0) return {moved.is_over, moved.error};
  }
  return {};
}

void ControlStream::drop_posted() {
  exchanges_.drop_posted();
  outgoing_.drop_posted();
  into_ = nullptr;
}

std::pair<Descriptor, Bytes> ControlStream::release() {
  Bytes rest = outgoing_.rest();
  return {socket_.release(), std::move(rest)};
}

}  // namespace lockstep::tcp
