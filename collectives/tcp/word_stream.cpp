// SPDX-License-Identifier: Apache-2.0
// Sends and receives frames: control messages, short messages, and the offers, requests and data of long ones.
#include "collectives/tcp/word_stream.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::tcp {
namespace {

constexpr std::size_t largest_whole = 64U << 10U;  // longer messages are offered first
constexpr std::size_t largest_word = 16U << 20U;
constexpr std::size_t looked_at = 4096;  // bytes thrown away at once

}  // namespace

void WordStream::say(Bytes word) {
  const FrameHeader frame{FrameKind::word, 0, 0, word.size()};
  put(frame, std::move(word));
}

void WordStream::send(const PostedSend& sending) {
  if (sending.head.bytes <= largest_whole) {
    leaving_.push_back(
        {{FrameKind::whole, 0, sending.head.call_tag, sending.head.bytes}, {}, sending.from, sending.left});
    return;
  }
  offered_.push_back({++last_number_, sending});
  put({FrameKind::offer, last_number_, sending.head.call_tag, sending.head.bytes}, {});
}

void WordStream::want(const PostedReceive& want) {
  const auto here =
      std::ranges::find_if(early_, [&](const UnexpectedMessage& each) { return each.frame.call_tag == want.call_tag; });
  if (here == early_.end()) {
    wants_.push_back(want);
    return;
  }
  UnexpectedMessage early = std::move(*here);
  early_.erase(here);
  give(want, early);
}

void WordStream::arrived(UnexpectedMessage early) {
  const auto wanted = std::ranges::find(wants_, early.frame.call_tag, &PostedReceive::call_tag);
  if (wanted == wants_.end()) {
    early_.push_back(std::move(early));
    return;
  }
  const PostedReceive want = *wanted;
  wants_.erase(wanted);
  give(want, early);
}

void WordStream::give(const PostedReceive& want, UnexpectedMessage& early) {
  if (early.frame.bytes != want.bytes) {
    if (!other_length_) other_length_ = LengthMismatch{early.frame.bytes, want.bytes};
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
void WordStream::grant(std::uint32_t number) {
  const auto found = std::ranges::find(offered_, number, &OfferedSend::number);
  if (found == offered_.end()) return;
  const PostedSend& sending = found->sending;
  leaving_.push_back(
      {{FrameKind::data, number, sending.head.call_tag, sending.head.bytes}, {}, sending.from, sending.left});
  offered_.erase(found);
}

void WordStream::begin_body() {
  std::memcpy(&coming_, frame_.data(), sizeof coming_);
  frame_.clear();
  in_body_ = true;
  received_ = 0;
  into_ = nullptr;
  body_.clear();
  switch (coming_.kind) {
    case FrameKind::word:
    case FrameKind::whole:
      is_wrong_ = coming_.bytes > (coming_.kind == FrameKind::word ? largest_word : largest_whole);
      if (!is_wrong_) body_.resize(coming_.bytes);
      break;
    case FrameKind::data: {
      const auto granted = std::ranges::find(granted_, coming_.number, &GrantedReceive::number);
      is_wrong_ = granted == granted_.end() || granted->want.bytes != coming_.bytes;
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

void WordStream::end_body(std::vector<Bytes>& words) {
  in_body_ = false;
  switch (coming_.kind) {
    case FrameKind::word:
      words.push_back(std::move(body_));
      body_ = {};
      break;
    case FrameKind::whole:
    case FrameKind::offer:
      arrived({coming_, std::move(body_)});
      body_ = {};
      break;
    case FrameKind::grant:
      grant(coming_.number);
      break;
    case FrameKind::data: {
      const auto granted = std::ranges::find(granted_, coming_.number, &GrantedReceive::number);
      if (granted->want.into != nullptr) --granted->want.left->receives;
      granted_.erase(granted);
      break;
    }
    case FrameKind::farewell:
      has_heard_farewell_ = true;
  }
}

WordStream::WordProgress WordStream::receive(std::vector<Bytes>& words) {
  while (is_open()) {
    IoResult moved;
    if (!in_body_) {
      const std::size_t before = frame_.size();
      frame_.resize(sizeof(FrameHeader));
      moved = read(socket_, std::span(frame_).subspan(before));
      frame_.resize(before + moved.bytes);
      if (frame_.size() == sizeof(FrameHeader)) begin_body();
      if (is_wrong_) return {true, EPROTO};
    }
    const bool has_body =
        coming_.kind == FrameKind::word || coming_.kind == FrameKind::whole || coming_.kind == FrameKind::data;
    const std::size_t all = has_body ? coming_.bytes : 0;
    if (in_body_ && received_ < all) {
      std::array<std::byte, looked_at> nowhere;
      std::span<std::byte> into(nowhere.data(), std::min(nowhere.size(), all - received_));
      if (coming_.kind != FrameKind::data) into = std::span(body_).subspan(received_);
      if (into_ != nullptr) into = {into_ + received_, all - received_};
      moved = read(socket_, into);
      received_ += moved.bytes;
    }
    if (in_body_ && received_ == all) {
      end_body(words);
      continue;
    }
    if (moved.error == EFAULT && into_ != nullptr) return {true, EFAULT, unwritable()};
    if (moved.bytes == 0) return {moved.is_over, moved.error};
  }
  return {};
}

BadMemory WordStream::unwritable() const {
  const PostedReceive& want = std::ranges::find(granted_, coming_.number, &GrantedReceive::number)->want;
  return {want.into, want.bytes, Access::write, want.left};
}

WordStream::WordProgress WordStream::flush() {
  while (is_open() && !leaving_.empty()) {
    OutgoingFrame& first = leaving_.front();
    const std::size_t of_frame = std::min(sent_, sizeof(FrameHeader));
    const std::size_t of_payload = sent_ - of_frame;
    std::array<iovec, 2> parts = {
        iovec{reinterpret_cast<std::byte*>(&first.frame) + of_frame, sizeof(FrameHeader) - of_frame},
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
        iovec{const_cast<std::byte*>(first.data()) + of_payload, first.payload() - of_payload}};
    const IoResult moved = write(socket_, parts);
    if (moved.error == EFAULT && first.from != nullptr)
      return {true, EFAULT, BadMemory{first.from, first.payload(), Access::read, first.left}};
    if (moved.is_over) return {true, moved.error};
    sent_ += moved.bytes;
    if (sent_ < sizeof(FrameHeader) + first.payload()) return {};
    sent_ = 0;
    if (first.left != nullptr) --first.left->sends;
    leaving_.pop_front();
  }
  return {};
}

void WordStream::forget() {
  wants_.clear();
  offered_.clear();
  for (GrantedReceive& each : granted_) each.want.into = nullptr;
  into_ = nullptr;
  for (std::size_t i = 0; i < leaving_.size(); ++i) {
    OutgoingFrame& each = leaving_[i];
    each.left = nullptr;
    if (each.from == nullptr) continue;
    each.own.assign(each.from, each.from + each.frame.bytes);
    each.from = nullptr;
  }
}

std::pair<Descriptor, Bytes> WordStream::take() {
  Bytes rest;
  for (std::size_t i = 0; i < leaving_.size(); ++i) {
    const auto* const frame = reinterpret_cast<const std::byte*>(&leaving_[i].frame);
    rest.insert(rest.end(), frame, frame + sizeof(FrameHeader));
    rest.insert(rest.end(), leaving_[i].data(), leaving_[i].data() + leaving_[i].payload());
  }
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(sent_));
  return {std::move(socket_), std::move(rest)};
}

}  // namespace lockstep::tcp
