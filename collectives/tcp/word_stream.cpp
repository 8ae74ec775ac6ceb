// SPDX-License-Identifier: Apache-2.0
#include "collectives/tcp/word_stream.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::tcp {
namespace {

constexpr std::size_t largest_whole = 64U << 10U;  // messages beyond are offered
constexpr std::size_t largest_word = 16U << 20U;
constexpr std::size_t looked_at = 4096;  // bytes of what is thrown away, at once

}  // namespace

void WordStream::say(Bytes word) {
  const Frame frame{Kind::word, 0, 0, word.size()};
  put(frame, std::move(word));
}

void WordStream::send(const Sending& sending) {
  if (sending.head.bytes <= largest_whole) {
    leaving_.push_back({{Kind::whole, 0, sending.head.mark, sending.head.bytes}, {}, sending.from, sending.left});
    return;
  }
  offered_.push_back({++last_number_, sending});
  put({Kind::offer, last_number_, sending.head.mark, sending.head.bytes}, {});
}

void WordStream::want(const Want& want) {
  const auto here = std::ranges::find_if(early_, [&](const Early& each) { return each.frame.mark == want.mark; });
  if (here == early_.end()) {
    wants_.push_back(want);
    return;
  }
  Early early = std::move(*here);
  early_.erase(here);
  give(want, early);
}

void WordStream::arrived(Early early) {
  const auto wanted = std::ranges::find(wants_, early.frame.mark, &Want::mark);
  if (wanted == wants_.end()) {
    early_.push_back(std::move(early));
    return;
  }
  const Want want = *wanted;
  wants_.erase(wanted);
  give(want, early);
}

void WordStream::give(const Want& want, Early& early) {
  if (early.frame.bytes != want.bytes) {
    if (!other_length_) other_length_ = OtherLength{early.frame.bytes, want.bytes};
    return;
  }
  if (early.frame.kind == Kind::offer) {
    granted_.push_back({early.frame.number, want});
    put({Kind::grant, early.frame.number, 0, 0}, {});
    return;
  }
  if (want.bytes > 0) std::memcpy(want.into, early.here.data(), want.bytes);
  --want.left->receives;
}

// What was given up meanwhile is not sent: who waits for it hears why.
void WordStream::grant(std::uint32_t number) {
  const auto found = std::ranges::find(offered_, number, &Numbered::number);
  if (found == offered_.end()) return;
  const Sending& sending = found->sending;
  leaving_.push_back({{Kind::data, number, sending.head.mark, sending.head.bytes}, {}, sending.from, sending.left});
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
    case Kind::word:
    case Kind::whole:
      is_wrong_ = coming_.bytes > (coming_.kind == Kind::word ? largest_word : largest_whole);
      if (!is_wrong_) body_.resize(coming_.bytes);
      break;
    case Kind::data: {
      const auto granted = std::ranges::find(granted_, coming_.number, &Granted::number);
      is_wrong_ = granted == granted_.end() || granted->want.bytes != coming_.bytes;
      if (!is_wrong_) into_ = granted->want.into;
      break;
    }
    case Kind::offer:
    case Kind::grant:
    case Kind::farewell:
      break;
    default:
      is_wrong_ = true;
  }
}

void WordStream::end_body(std::vector<Bytes>& words) {
  in_body_ = false;
  switch (coming_.kind) {
    case Kind::word:
      words.push_back(std::move(body_));
      body_ = {};
      break;
    case Kind::whole:
    case Kind::offer:
      arrived({coming_, std::move(body_)});
      body_ = {};
      break;
    case Kind::grant:
      grant(coming_.number);
      break;
    case Kind::data: {
      const auto granted = std::ranges::find(granted_, coming_.number, &Granted::number);
      if (granted->want.into != nullptr) --granted->want.left->receives;
      granted_.erase(granted);
      break;
    }
    case Kind::farewell:
      has_heard_farewell_ = true;
  }
}

WordStream::Outcome WordStream::receive(std::vector<Bytes>& words) {
  while (is_open()) {
    Moved moved;
    if (!in_body_) {
      const std::size_t before = frame_.size();
      frame_.resize(sizeof(Frame));
      moved = read(socket_, std::span(frame_).subspan(before));
      frame_.resize(before + moved.bytes);
      if (frame_.size() == sizeof(Frame)) begin_body();
      if (is_wrong_) return {true, EPROTO};
    }
    const bool has_body = coming_.kind == Kind::word || coming_.kind == Kind::whole || coming_.kind == Kind::data;
    const std::size_t all = has_body ? coming_.bytes : 0;
    if (in_body_ && received_ < all) {
      std::array<std::byte, looked_at> nowhere;
      std::span<std::byte> into(nowhere.data(), std::min(nowhere.size(), all - received_));
      if (coming_.kind != Kind::data) into = std::span(body_).subspan(received_);
      if (into_ != nullptr) into = {into_ + received_, all - received_};
      moved = read(socket_, into);
      received_ += moved.bytes;
    }
    if (in_body_ && received_ == all) {
      end_body(words);
      continue;
    }
    if (moved.bytes == 0) return {moved.is_over, moved.error};
  }
  return {};
}

WordStream::Outcome WordStream::flush() {
  while (is_open() && !leaving_.empty()) {
    Leaving& first = leaving_.front();
    const std::size_t of_frame = std::min(sent_, sizeof(Frame));
    const std::size_t of_payload = sent_ - of_frame;
    std::array<iovec, 2> parts = {
        iovec{reinterpret_cast<std::byte*>(&first.frame) + of_frame, sizeof(Frame) - of_frame},
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
        iovec{const_cast<std::byte*>(first.data()) + of_payload, first.payload() - of_payload}};
    const Moved moved = write(socket_, parts);
    if (moved.is_over) return {true, moved.error};
    sent_ += moved.bytes;
    if (sent_ < sizeof(Frame) + first.payload()) return {};
    sent_ = 0;
    if (first.left != nullptr) --first.left->sends;
    leaving_.pop_front();
  }
  return {};
}

void WordStream::forget() {
  wants_.clear();
  offered_.clear();
  for (Granted& each : granted_) each.want.into = nullptr;
  into_ = nullptr;
  for (std::size_t i = 0; i < leaving_.size(); ++i) {
    Leaving& each = leaving_[i];
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
    rest.insert(rest.end(), frame, frame + sizeof(Frame));
    rest.insert(rest.end(), leaving_[i].data(), leaving_[i].data() + leaving_[i].payload());
  }
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(sent_));
  return {std::move(socket_), std::move(rest)};
}

}  // namespace lockstep::tcp
