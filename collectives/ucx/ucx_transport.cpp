// SPDX-License-Identifier: Apache-2.0
// Posts rounds, matches their messages, and gives up or closes the data worker.
#include "collectives/ucx/ucx_transport.hpp"

#include <poll.h>

#include <algorithm>

#include "collectives/engine/round_rules.hpp"
#include "collectives/ucx/transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

std::optional<std::string> why_no_ucx() { return std::nullopt; }

namespace ucx {

// Moves the data worker while this thread waits for something else. UCX counts a small message as sent once it is
// copied, but delivers it only when it is called again.
void UcxTransport::move() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (!data_) return hook_.idle();
  data_->progress();
  if (data_->is_flushing()) return;
  if (!std::exchange(has_sent_, false)) return hook_.idle();
  data_->flush();
}

bool UcxTransport::receive(const Worker::Arrival& arrival) {
  const auto proven = opened(arrival.head, theirs_);
  if (!proven) return false;
  const MessageHeader& head = *proven;
  const int peer = static_cast<int>(head.source);
  auto& [ours, wants, early] = source(peer);
  const auto wanted = std::ranges::find_if(
      wants, [&](const UcxReceive& each) { return each.channel == head.channel && each.call_tag == head.call_tag; });
  if (wanted != wants.end()) {
    const UcxReceive want = *wanted;
    wants.erase(wanted);
    accept(peer, want, arrival.bytes, arrival.data, arrival.is_far ? arrival.data : nullptr);
    return false;
  }
  Bytes copy;
  if (!arrival.is_far) {
    const auto* const begin = static_cast<const std::byte*>(arrival.data);
    copy.assign(begin, begin + arrival.bytes);
  }
  early.push_back(
      {head.channel, head.call_tag, arrival.bytes, std::move(copy), arrival.is_far ? arrival.data : nullptr});
  return arrival.is_far;
}

void UcxTransport::accept(int peer, const UcxReceive& want, std::size_t bytes, const void* data, void* far_data) {
  if (bytes != want.bytes) {
    if (wrong_.empty()) wrong_ = round_rules::length_mismatch(peer, bytes, rank_, want.bytes);
    want.operation->state = UcxOperationState::failed;
    return;
  }
  if (far_data != nullptr) return data_->take(far_data, want.data, bytes, *want.operation);
  if (bytes > 0 && data != nullptr) std::memcpy(want.data, data, bytes);
  want.operation->state = UcxOperationState::done;
}

void UcxTransport::want(int peer, const UcxReceive& want) {
  auto& [ours, wants, early] = source(peer);
  const auto here = std::ranges::find_if(early, [&](const UnexpectedArrival& each) {
    return each.channel == want.channel && each.call_tag == want.call_tag;
  });
  if (here == early.end()) {
    wants.push_back(want);
    return;
  }
  const UnexpectedArrival found = std::move(*here);
  early.erase(here);
  if (found.bytes != want.bytes && found.far_data != nullptr) data_->drop(found.far_data);
  accept(peer, want, found.bytes, found.copy.data(), found.far_data);
}

void UcxTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                        std::span<const ReceiveDescriptor> receives) {
  const std::lock_guard lock(mutex_);
  if (!data_) throw round_rules::transport_is_given_up();
  while (static_cast<std::size_t>(round_tag.lane) >= lanes_.size()) lanes_.emplace_back();
  UcxLane& lane = lanes_[static_cast<std::size_t>(round_tag.lane)];
  const auto channel = static_cast<std::uint64_t>(round_tag.is_exchange ? lane_count : round_tag.lane);
  if (!lane.sends.empty() || !lane.receives.empty()) throw round_rules::lane_is_busy(round_tag.lane);
  lane.receives.assign(receives.size(), UcxOperation{UcxOperationState::flying});
  lane.sends.resize(sends.size());
  for (std::size_t i = 0; i < receives.size(); ++i)
    want(receives[i].peer, {channel, round_tag.call_tag, receives[i].data, receives[i].bytes, &lane.receives[i]});
  for (std::size_t i = 0; i < sends.size(); ++i) {
    lane.sends[i].head = {source(sends[i].peer).ours, static_cast<std::uint32_t>(rank_), round_tag.call_tag, channel};
    data_->send(sends[i].peer, bytes_of(lane.sends[i].head), sends[i].data, sends[i].bytes, lane.sends[i].operation);
  }
  if (sends.empty()) return;
  has_sent_ = true;
  hook_.busy();
}

template <class Operations, class Of>
bool UcxTransport::all_over(const Operations& operations, std::size_t& over, const Of& of) {
  while (over < operations.size() && of(operations[over]).state == UcxOperationState::done) ++over;
  return over == operations.size();
}

// Never reports a failed round as done: control messages or the end of patience tell which member is gone, and why.
bool UcxTransport::done(int number) {
  const std::lock_guard lock(mutex_);
  if (!data_) return false;
  UcxLane& lane = lanes_[static_cast<std::size_t>(number)];
  const auto is_over = [&] {
    const auto of_send = [](const UcxSend& each) -> const UcxOperation& { return each.operation; };
    const auto of_operation = [](const UcxOperation& each) -> const UcxOperation& { return each; };
    return all_over(lane.receives, lane.receives_over, of_operation) && all_over(lane.sends, lane.sends_over, of_send);
  };
  constexpr int most = 16;
  for (int turns = 0; turns < most && !is_over() && wrong_.empty(); ++turns) {
    if (!data_->progress()) break;
  }
  if (!wrong_.empty()) throw round_rules::mismatch(wrong_);
  if (!is_over()) return false;
  lane.sends.clear();
  lane.receives.clear();
  lane.sends_over = lane.receives_over = 0;
  return true;
}

// Stops the data worker for good. Memory with a message under way is not safe, because within a host the other side may
// read or write it.
bool UcxTransport::abandon() {
  const std::lock_guard lock(mutex_);
  if (!data_) return true;
  for (PeerQueue& each : sources_) {  // receives without a message have nothing under way
    for (const UcxReceive& want : each.wants) want.operation->state = UcxOperationState::failed;
    each.wants.clear();
  }
  const bool is_safe = std::ranges::all_of(lanes_, [](const UcxLane& lane) {
    const auto is_flying = [](const UcxOperation& each) { return each.state == UcxOperationState::flying; };
    return std::ranges::none_of(lane.receives, is_flying) &&
           std::ranges::none_of(lane.sends, is_flying, &UcxSend::operation);
  });
  drop_early();
  Worker::give_up(std::move(data_));
  for (UcxLane& lane : lanes_) lane = UcxLane{};
  return is_safe;
}

void UcxTransport::sleep(std::int64_t nanoseconds) {
  std::array<pollfd, 2> awaited{};
  {
    const std::lock_guard lock(mutex_);
    if (!heard_.empty() || !words_->arm() || (data_ && !data_->arm())) return;
    awaited = {pollfd{words_->descriptor(), POLLIN, 0}, pollfd{data_ ? data_->descriptor() : -1, POLLIN, 0}};
  }
  const timespec time = round_rules::to_timespec(nanoseconds);
  ::ppoll(awaited.data(), awaited.size(), &time, nullptr);
}

UcxTransport::~UcxTransport() {
  const std::lock_guard lock(mutex_);
  if (data_) drop_early();
  if (is_sending()) Worker::give_up(std::move(data_));  // from the caller's memory
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) send_word(peer, farewell, {});
  }
  context_->closing.add(std::make_unique<ClosingTransport>(std::move(words_), std::move(data_), std::move(telling_),
                                                           std::move(theirs_), std::move(has_left_)));
}

bool UcxTransport::is_sending() const {
  return std::ranges::any_of(lanes_, [](const UcxLane& lane) {
    return std::ranges::any_of(
        lane.sends, [](const UcxOperation& each) { return each.state == UcxOperationState::flying; },
        &UcxSend::operation);
  });
}

void UcxTransport::drop_early() {
  for (PeerQueue& each : sources_) {
    for (const UnexpectedArrival& early : each.early) {
      if (early.far_data != nullptr) data_->drop(early.far_data);
    }
    each.early.clear();
  }
}

}  // namespace ucx

Ucx::Ucx(UcxOptions options) : shared_(std::make_shared<Shared>(std::move(options))) {
  if (!shared_->key) throw Error(Code::internal, "UCX without a key");
}
Ucx::~Ucx() = default;

std::unique_ptr<Transport> Ucx::transport(Exchange& exchange, LostMemberLookup lost) {
  return std::make_unique<ucx::UcxTransport>(shared_, exchange, std::move(lost));
}

}  // namespace lockstep
