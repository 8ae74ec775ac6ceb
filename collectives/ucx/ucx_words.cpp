// SPDX-License-Identifier: Apache-2.0
// Connects the members of a transport over UCX, and carries their control messages.
#include <algorithm>

#include "collectives/ucx/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep::ucx {

namespace {

// Keeps exceptions out of UCX, which cannot pass them on. The first error text stays in `wrong`.
template <class Action>
auto guarded(std::string& wrong, const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const std::exception& error) {
    if (wrong.empty()) wrong = error.what();
    return decltype(action())();
  }
}

}  // namespace

UcxTransport::UcxTransport(std::shared_ptr<Ucx::Shared> context, Exchange& exchange, LostMemberLookup lost)
    : context_(std::move(context)),
      rank_(exchange.rank()),
      lost_(std::move(lost)),
      sources_(static_cast<std::size_t>(exchange.size())),
      theirs_(sources_.size()),
      greeted_(sources_.size()),
      has_left_(sources_.size()),
      log_(exchange.log()),
      words_(std::make_unique<Worker>(context_->context,
                                      [this](const auto& arrival) {
                                        guarded(wrong_, [&] { hear_word(arrival); });
                                        return false;
                                      })),
      data_(std::make_unique<Worker>(context_->context, [this](const auto& arrival) {
        return guarded(wrong_, [&] { return receive(arrival); });
      })) {
  has_left_[static_cast<std::size_t>(rank_)] = true;
  meet(exchange);
}

// Exchanges addresses and a nonce of each member. A message's token is made of the key and both nonces, for each pair
// and direction. Nobody without the key knows it, and it differs in the next transport.
void UcxTransport::meet(Exchange& exchange) {
  MessageToken nonce;
  fill_random(nonce);
  Writer mine;
  mine.put(words_->address()).put(data_->address()).put(std::span<const std::byte>(nonce));
  Roster::introduce(mine, context_->label);
  std::vector<Bytes> words;
  std::vector<Bytes> data;
  std::vector<Bytes> nonces;
  for (const Bytes& each : exchange.all_gather("addresses of UCX", mine.take())) {
    Reader reader(each);
    words.push_back(reader.get_bytes());
    data.push_back(reader.get_bytes());
    nonces.push_back(reader.get_bytes());
    roster_.add(reader);
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
    theirs_[static_cast<std::size_t>(peer)] = token(peer, rank_);
    source(peer).ours = token(rank_, peer);
  }
  words_->set_peers(std::move(words));
  data_->set_peers(std::move(data));
  connect(exchange.patience());
}

// Connects now, because a connection needs both sides at work until it stands. Later one side may be elsewhere or gone
// while the other tells it something. Data connections can wait: they are made between members in one call, and a
// waiting thread moves the rest.
void UcxTransport::connect(Patience patience) {
  const auto begin = std::chrono::steady_clock::now();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) send_word(peer, greeting, {});
  }
  const auto flies = [](const UcxControlMessage& each) { return each.operation.state == UcxOperationState::flying; };
  bool warns = patience.warn > Duration{};
  auto seen_unreachable = begin;
  while (std::ranges::count(greeted_, true) < size() - 1 || std::ranges::any_of(telling_, flies)) {
    words_->progress();
    if (lost_) {
      if (const auto who = lost_()) throw Error(Code::peer_failed, who->words, "see that process's own error");
    }
    const Duration waited = std::chrono::steady_clock::now() - begin;
    if (patience.limit > Duration{} && waited > patience.limit)
      throw Error(Code::stall,
                  text("waited ", format_duration(patience.limit), " for connections of UCX: ", silent_ones(), " (",
                       variables(), ')'),
                  "check that the hosts reach each other at every port; UCX_NET_DEVICES names the interface");
    if (warns && waited > patience.warn) {
      log_.warn(text(id(Code::stall), " waiting for ", format_duration(patience.warn),
                     " for connections of UCX: ", silent_ones()));
      warns = false;
    }
    // The exchange may need this time to learn of a death, if that is the reason.
    constexpr std::chrono::milliseconds hub_knows{500};
    const std::string unreachable = words_to_unreachable();
    if (unreachable.empty()) seen_unreachable = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - seen_unreachable > hub_knows) throw Error(Code::system, unreachable, remedy);
    run_progress_hooks(0);
    if (words_->arm()) words_->sleep(std::chrono::milliseconds(1));
  }
  telling_.clear();
}

std::string UcxTransport::words_to_unreachable() const {
  for (int peer = 0; peer < size(); ++peer) {
    const std::string why = words_->why_dead(peer);
    if (!why.empty() && peer != rank_) return text("UCX does not reach rank ", peer, ": ", why, " (", variables(), ')');
  }
  return {};
}

std::string UcxTransport::silent_ones() const {
  IndexSet silent;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !greeted_[static_cast<std::size_t>(peer)]) silent.insert(peer);
  }
  return text("nothing has come from rank ", silent.to_string());
}

void UcxTransport::tell(int peer, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (peer == rank_) {
    heard_.push_back({rank_, std::move(bytes)});
    return;
  }
  send_word(peer, ordinary, std::move(bytes));
}

// True if all control messages are sent, also those to other members.
bool UcxTransport::is_said(int) {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(
      telling_, [](const UcxControlMessage& each) { return each.operation.state == UcxOperationState::flying; });
}

void UcxTransport::send_word(int peer, std::uint32_t kind, Bytes bytes) {
  UcxControlMessage& word = telling_.emplace_back();
  word.head = {source(peer).ours, static_cast<std::uint32_t>(rank_), kind, 0};
  word.bytes = std::move(bytes);
  words_->send(peer, bytes_of(word.head), word.bytes.data(), word.bytes.size(), word.operation, UCP_AM_SEND_FLAG_EAGER);
}

void UcxTransport::hear_word(const Worker::Arrival& arrival) {
  const auto head = opened(arrival.head, theirs_);
  if (!head || arrival.is_far) return;
  if (head->call_tag == greeting) {
    greeted_[head->source] = true;
    return;
  }
  if (head->call_tag == farewell) {
    has_left_[head->source] = true;
    return;
  }
  const auto* const begin = static_cast<const std::byte*>(arrival.data);
  heard_.push_back({static_cast<int>(head->source), {begin, begin + arrival.bytes}});
}

std::optional<Transport::SmallMessage> UcxTransport::hear() {
  constexpr unsigned between_looks = 16;
  const std::lock_guard lock(mutex_);
  if (lost_ && !who_is_lost_ && turns_++ % between_looks == 0) {
    who_is_lost_ = lost_();
    lost_at_ = std::chrono::steady_clock::now();
  }
  words_->progress();
  std::erase_if(telling_,
                [](const UcxControlMessage& each) { return each.operation.state != UcxOperationState::flying; });
  if (heard_.empty()) {
    if (who_is_lost_ && !told_of_lost_) say_loss();
    return std::nullopt;
  }
  SmallMessage next = std::move(heard_.front());
  heard_.pop_front();
  return next;
}

// Reports a loss after a pause, because a member on the lost one's host knows how it ended and should report first.
void UcxTransport::say_loss() {
  constexpr std::chrono::milliseconds neighbours_take{200};
  const int number = who_is_lost_->rank;
  if (const auto end = number < 0 || who_is_lost_->says_how ? std::nullopt : roster_.end_of(number))
    who_is_lost_ = LostMember{number, *end, true};
  const bool others_know =
      number >= 0 && !who_is_lost_->says_how && !roster_.process_of(number) && roster_.has_neighbour(number);
  if (std::chrono::steady_clock::now() - lost_at_ <= (others_know ? neighbours_take : last_words_take)) return;
  told_of_lost_ = true;
  throw Error(Code::peer_failed, who_is_lost_->words, "see that process's own error");
}

}  // namespace lockstep::ucx
