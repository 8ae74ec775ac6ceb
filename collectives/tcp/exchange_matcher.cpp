// SPDX-License-Identifier: Apache-2.0
// Finds the other half of each message.
#include "collectives/tcp/exchange_matcher.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::tcp {

void ExchangeMatcher::post_send(const PostedSend& sending) {
  if (sending.head.bytes <= max_whole_bytes)
    return outgoing_.put({FrameKind::whole, 0, sending.head.call_tag, sending.head.bytes}, sending);
  offered_.push_back({++last_number_, sending});
  outgoing_.put({FrameKind::offer, last_number_, sending.head.call_tag, sending.head.bytes}, Bytes());
}

void ExchangeMatcher::post_receive(const PostedReceive& want) {
  const auto here = std::ranges::find_if(
      unexpected_, [&](const UnexpectedMessage& each) { return each.header.call_tag == want.call_tag; });
  if (here == unexpected_.end()) {
    receives_.push_back(want);
    return;
  }
  const UnexpectedMessage early = std::move(*here);
  unexpected_.erase(here);
  match(want, early.header, early.here);
}

void ExchangeMatcher::take_message(const FrameHeader& header, Bytes here) {
  const auto wanted = std::ranges::find(receives_, header.call_tag, &PostedReceive::call_tag);
  if (wanted == receives_.end()) {
    unexpected_.push_back({header, std::move(here)});
    return;
  }
  const PostedReceive want = *wanted;
  receives_.erase(wanted);
  match(want, header, here);
}

void ExchangeMatcher::match(const PostedReceive& want, const FrameHeader& header, const Bytes& here) {
  if (header.bytes != want.bytes) {
    if (!length_mismatch_) length_mismatch_ = LengthMismatch{header.bytes, want.bytes};
    return;
  }
  if (header.kind == FrameKind::offer) {
    granted_.push_back({header.number, want});
    outgoing_.put({FrameKind::grant, header.number, 0, 0}, Bytes());
    return;
  }
  if (want.bytes > 0) std::memcpy(want.into, here.data(), want.bytes);
  --want.left->receives;
}

// Sends no message that was given up meanwhile; the rank that waits for it learns the reason.
void ExchangeMatcher::grant(std::uint32_t number) {
  const auto found = std::ranges::find(offered_, number, &OfferedSend::number);
  if (found == offered_.end()) return;
  const LaneHeader& head = found->sending.head;
  outgoing_.put({FrameKind::data, number, head.call_tag, head.bytes}, found->sending);
  offered_.erase(found);
}

const PostedReceive* ExchangeMatcher::requested(std::uint32_t number) const {
  const auto granted = std::ranges::find(granted_, number, &GrantedReceive::number);
  return granted == granted_.end() ? nullptr : &granted->want;
}

void ExchangeMatcher::end_data(std::uint32_t number) {
  const auto granted = std::ranges::find(granted_, number, &GrantedReceive::number);
  if (granted->want.into != nullptr) --granted->want.left->receives;
  granted_.erase(granted);
}

void ExchangeMatcher::drop_posted() {
  receives_.clear();
  offered_.clear();
  for (GrantedReceive& each : granted_) each.want.into = nullptr;
}

}  // namespace lockstep::tcp
