// SPDX-License-Identifier: Apache-2.0
// Introduces the members, posts rounds, matches their messages, and gives up or closes the data worker.
#include "collectives/ucx/ucx_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/engine/round_rules.hpp"
#include "collectives/ucx/transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

std::optional<std::string> why_no_ucx() { return std::nullopt; }

namespace ucx {

UcxTransport::UcxTransport(std::shared_ptr<Ucx::Shared> context, Exchange& exchange, LostMemberLookup lost)
    : context_(std::move(context)),
      rank_(exchange.rank()),
      losses_(std::move(lost)),
      sources_(static_cast<std::size_t>(exchange.size())),
      tokens_{std::vector<MessageToken>(sources_.size()), std::vector<MessageToken>(sources_.size())},
      control_(context_->context, rank_, tokens_, wrong_),
      data_(std::make_unique<Worker>(context_->context, [this](const auto& arrival) {
        return guarded(wrong_, [&] { return receive(arrival); });
      })) {
  meet(exchange);
  control_.connect(exchange.wait_limits(), losses_, exchange.log());
}

// Exchanges addresses and a nonce of each member. A message's token is made of the key and both nonces, for each pair
// and direction. Nobody without the key knows it, and it differs in the next transport.
void UcxTransport::meet(Exchange& exchange) {
  MessageToken nonce;
  fill_random(nonce);
  Writer mine;
  mine.put(control_.worker().address()).put(data_->address()).put(std::span<const std::byte>(nonce));
  Roster::introduce(mine, context_->label);
  std::vector<Bytes> control;
  std::vector<Bytes> data;
  std::vector<Bytes> nonces;
  for (const Bytes& each : exchange.all_gather("addresses of UCX", mine.take())) {
    Reader reader(each);
    control.push_back(reader.get_bytes());
    data.push_back(reader.get_bytes());
    nonces.push_back(reader.get_bytes());
    losses_.roster().add(reader);
  }
  const auto token = [&](int from, int to) {
    Writer writer;
    writer.put(std::string_view("lockstep ucx")).put(from).put(to);
    writer.put(nonces.at(static_cast<std::size_t>(from))).put(nonces.at(static_cast<std::size_t>(to)));
    const Mac mac = context_->key->mac(writer.take());
    MessageToken half;
    std::copy_n(mac.begin(), half.size(), half.begin());
    return half;
  };
  for (int peer = 0; peer < size(); ++peer) {
    tokens_.theirs[static_cast<std::size_t>(peer)] = token(peer, rank_);
    tokens_.ours[static_cast<std::size_t>(peer)] = token(rank_, peer);
  }
  control_.worker().set_peers(std::move(control));
  data_->set_peers(std::move(data));
}

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
  const auto proven = opened(arrival.head, tokens_.theirs);
  if (!proven) return false;
  const MessageHeader& head = *proven;
  const int peer = static_cast<int>(head.source);
  auto& [wants, early] = source(peer);
  const auto wanted = std::ranges::find_if(
      wants, [&](const UcxReceive& each) { return each.channel == head.channel && each.call_tag == head.call_tag; });
  if (wanted != wants.end()) {
    const UcxReceive want = *wanted;
    wants.erase(wanted);
    accept(peer, want, arrival.bytes, arrival.data, arrival.is_rendezvous ? arrival.data : nullptr);
    return false;
  }
  Bytes copy;
  if (!arrival.is_rendezvous) {
    const auto* const begin = static_cast<const std::byte*>(arrival.data);
    copy.assign(begin, begin + arrival.bytes);
  }
  early.push_back(
      {head.channel, head.call_tag, arrival.bytes, std::move(copy), arrival.is_rendezvous ? arrival.data : nullptr});
  return arrival.is_rendezvous;
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
  auto& [wants, early] = source(peer);
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
  const auto channel = static_cast<std::uint64_t>(round_tag.is_message ? lane_count : round_tag.lane);
  if (!lane.sends.empty() || !lane.receives.empty()) throw round_rules::lane_is_busy(round_tag.lane);
  lane.receives.assign(receives.size(), UcxOperation{UcxOperationState::in_flight});
  lane.sends.resize(sends.size());
  for (std::size_t i = 0; i < receives.size(); ++i)
    want(receives[i].peer, {channel, round_tag.call_tag, receives[i].data, receives[i].bytes, &lane.receives[i]});
  for (std::size_t i = 0; i < sends.size(); ++i) {
    lane.sends[i].head = {tokens_.ours[static_cast<std::size_t>(sends[i].peer)], static_cast<std::uint32_t>(rank_),
                          round_tag.call_tag, channel};
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

// Never reports a failed round as done: control messages or the wait limit tell which member is gone, and why.
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
    const auto is_in_flight = [](const UcxOperation& each) { return each.state == UcxOperationState::in_flight; };
    return std::ranges::none_of(lane.receives, is_in_flight) &&
           std::ranges::none_of(lane.sends, is_in_flight, &UcxSend::operation);
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
    if (control_.has_next() || !control_.worker().arm() || (data_ && !data_->arm())) return;
    awaited = {pollfd{control_.worker().descriptor(), POLLIN, 0}, pollfd{data_ ? data_->descriptor() : -1, POLLIN, 0}};
  }
  const timespec time = round_rules::to_timespec(nanoseconds);
  ::ppoll(awaited.data(), awaited.size(), &time, nullptr);
}

void UcxTransport::send_control(int peer, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  control_.send_control(peer, std::move(bytes));
}

bool UcxTransport::is_control_sent(int) {
  const std::lock_guard lock(mutex_);
  return control_.is_control_sent();
}

std::optional<Transport::ReceivedControl> UcxTransport::receive_control() {
  const std::lock_guard lock(mutex_);
  losses_.look();
  auto next = control_.next();
  if (!next) losses_.report();
  return next;
}

UcxTransport::~UcxTransport() {
  const std::lock_guard lock(mutex_);
  if (data_) drop_early();
  if (is_sending()) Worker::give_up(std::move(data_));  // from the caller's memory
  context_->closing.add(control_.close(std::move(data_)));
}

bool UcxTransport::is_sending() const {
  return std::ranges::any_of(lanes_, [](const UcxLane& lane) {
    return std::ranges::any_of(
        lane.sends, [](const UcxOperation& each) { return each.state == UcxOperationState::in_flight; },
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
