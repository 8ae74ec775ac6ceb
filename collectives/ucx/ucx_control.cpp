// SPDX-License-Identifier: Apache-2.0
// Connects the members of a transport over UCX, and carries their control messages.
#include "collectives/ucx/ucx_control.hpp"

#include <algorithm>
#include <chrono>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"

namespace lockstep::ucx {

UcxControl::UcxControl(std::shared_ptr<const UcxContext> context, int rank, const UcxTokens& tokens, std::string& wrong)
    : rank_(rank), tokens_(tokens), greeted_(tokens.theirs.size()), has_left_(tokens.theirs.size()) {
  worker_ = std::make_unique<Worker>(std::move(context), [this, &wrong](const auto& arrival) {
    guarded(wrong, [&] { receive(arrival); });
    return false;
  });
  has_left_[static_cast<std::size_t>(rank_)] = true;
}

// Connects now, because a connection needs both sides at work until it stands. Later one side may be elsewhere or gone
// while the other tells it something. Data connections can wait: they are made between members in one call, and a
// waiting thread moves the rest.
void UcxControl::connect(WaitLimits wait_limits, const LossWatch& losses, const Log& log) {
  const auto begin = std::chrono::steady_clock::now();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) send(peer, greeting, {});
  }
  const auto is_in_flight = [](const UcxControlMessage& each) {
    return each.operation.state == UcxOperationState::in_flight;
  };
  bool warns = wait_limits.warn > Duration{};
  auto seen_unreachable = begin;
  while (std::ranges::count(greeted_, true) < size() - 1 || std::ranges::any_of(sending_, is_in_flight)) {
    worker_->progress();
    losses.check();
    const Duration waited = std::chrono::steady_clock::now() - begin;
    if (wait_limits.limit > Duration{} && waited > wait_limits.limit)
      throw Error(Code::stall,
                  text("waited ", format_duration(wait_limits.limit), " for connections of UCX: ", silent_members(),
                       " (", variables(), ')'),
                  "check that the hosts reach each other at every port; UCX_NET_DEVICES names the interface");
    if (warns && waited > wait_limits.warn) {
      log.warn(text(id(Code::stall), " waiting for ", format_duration(wait_limits.warn),
                    " for connections of UCX: ", silent_members()));
      warns = false;
    }
    // The exchange may need this time to learn of a death, if that is the reason.
    constexpr std::chrono::milliseconds hub_knows{500};
    const std::string unreachable = why_unreachable();
    if (unreachable.empty()) seen_unreachable = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - seen_unreachable > hub_knows) throw Error(Code::system, unreachable, remedy);
    run_progress_hooks(0);
    if (worker_->arm()) worker_->sleep(std::chrono::milliseconds(1));
  }
  sending_.clear();
}

std::string UcxControl::why_unreachable() const {
  for (int peer = 0; peer < size(); ++peer) {
    const std::string why = worker_->why_dead(peer);
    if (!why.empty() && peer != rank_) return text("UCX does not reach rank ", peer, ": ", why, " (", variables(), ')');
  }
  return {};
}

std::string UcxControl::silent_members() const {
  IndexSet silent;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !greeted_[static_cast<std::size_t>(peer)]) silent.insert(peer);
  }
  return text("nothing has come from rank ", silent.to_string());
}

void UcxControl::send_control(int peer, Bytes bytes) {
  if (peer == rank_)
    received_.push_back({rank_, std::move(bytes)});
  else
    send(peer, ordinary, std::move(bytes));
}

bool UcxControl::is_control_sent() const {
  return std::ranges::none_of(
      sending_, [](const UcxControlMessage& each) { return each.operation.state == UcxOperationState::in_flight; });
}

void UcxControl::send(int peer, std::uint32_t kind, Bytes bytes) {
  UcxControlMessage& message = sending_.emplace_back();
  message.head = {tokens_.ours[static_cast<std::size_t>(peer)], static_cast<std::uint32_t>(rank_), kind, 0};
  message.bytes = std::move(bytes);
  worker_->send(peer, bytes_of(message.head), message.bytes.data(), message.bytes.size(), message.operation,
                UCP_AM_SEND_FLAG_EAGER);
}

void UcxControl::receive(const Worker::Arrival& arrival) {
  const auto head = opened(arrival.head, tokens_.theirs);
  if (!head || arrival.is_rendezvous) return;
  if (head->call_tag == greeting) {
    greeted_[head->source] = true;
    return;
  }
  if (head->call_tag == farewell) {
    has_left_[head->source] = true;
    return;
  }
  const auto* const begin = static_cast<const std::byte*>(arrival.data);
  received_.push_back({static_cast<int>(head->source), {begin, begin + arrival.bytes}});
}

std::optional<Transport::ReceivedControl> UcxControl::next() {
  worker_->progress();
  std::erase_if(sending_,
                [](const UcxControlMessage& each) { return each.operation.state != UcxOperationState::in_flight; });
  if (received_.empty()) return std::nullopt;
  Transport::ReceivedControl next = std::move(received_.front());
  received_.pop_front();
  return next;
}

std::unique_ptr<ClosingTransport> UcxControl::close(std::unique_ptr<Worker> data) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) send(peer, farewell, {});
  }
  return std::make_unique<ClosingTransport>(std::move(worker_), std::move(data), std::move(sending_), tokens_.theirs,
                                            std::move(has_left_));
}

}  // namespace lockstep::ucx
