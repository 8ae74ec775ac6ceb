// SPDX-License-Identifier: Apache-2.0
// Posts the rounds of the transport over sockets, moves its data, and sends and receives control messages.
#include "collectives/tcp/tcp_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "collectives/engine/memory_fault.hpp"
#include "collectives/tcp/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace tcp {
namespace {

constexpr std::chrono::milliseconds last_words_take{100};  // to send them to a listening rank, or to receive them
constexpr std::chrono::milliseconds looked_after{50};  // a rank that is awaited for so long has to show that it lives
constexpr std::uint64_t channel_across = lane_count;

std::uint64_t channel_of(RoundTag round_tag) {
  return round_tag.is_exchange ? channel_across : static_cast<std::uint64_t>(round_tag.lane);
}

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<Tcp::Shared> shared, Exchange& exchange, LostMemberLookup lost)
    : shared_(std::move(shared)),
      acceptor_(shared_->acceptor),
      lost_(std::move(lost)),
      doors_(place_to_wait()),
      window_(window_bytes) {
  me_.rank = static_cast<std::uint32_t>(exchange.rank());
  meet(exchange);
  open_doors();
}

// Exchanges the places of all ranks. The nonce of rank 0 names the communicator.
void TcpTransport::meet(Exchange& exchange) {
  HandshakeNonce nonce;
  fill_random(nonce);
  Writer mine;
  acceptor_.place().write(mine);
  mine.put(std::span<const std::byte>(nonce));
  Roster::introduce(mine, shared_->label.empty() ? to_text(acceptor_.place()) : shared_->label);
  const auto all = exchange.all_gather("addresses of members", mine.take());
  places_.reserve(all.size());
  for (const Bytes& each : all) {
    Reader reader(each);
    places_.push_back(ListeningAddress::read(reader));
    const Bytes theirs = reader.get_bytes();
    if (theirs.size() != nonce.size()) throw Error(Code::bad_message, "a nonce of another length");
    if (places_.size() == 1) std::copy(theirs.begin(), theirs.end(), me_.meeting.begin());
    roster_.add(reader);
  }
}

TcpTransport::~TcpTransport() {
  const std::lock_guard lock(mutex_);
  try {
    Acceptor::LastWords last;
    WordStream others;
    if (!last_words_.empty()) others.say(last_words_);
    others.say_farewell();
    last.others = others.take().second;
    for (auto& [number, one] : peers_) see_off(number, *one, last);
    acceptor_.close(me_, words_channel, std::move(last));
  } catch (const std::bad_alloc&) {
    return;  // callers receive nothing then
  }
}

// Sees to it that the last messages reach the others, and that their unread messages cause no reset.
void TcpTransport::see_off(int number, TcpPeer& one, Acceptor::LastWords& last) {
  for (LaneStream& lane : one.lanes) {
    if (lane.is_open() && has_unread(lane.socket())) acceptor_.see_off(lane.take(), {});
  }
  const bool is_open = one.words.is_open();
  const ConnectionState link = one.links[words_channel];
  if (link == ConnectionState::over || (!is_open && link != ConnectionState::calling && !one.words.has_unsent()))
    return;
  if (!is_open && !last_words_.empty()) one.words.say(last_words_);
  one.words.say_farewell();
  one.words.flush();
  auto [socket, rest] = one.words.take();
  if (is_open) return acceptor_.see_off(std::move(socket), std::move(rest));
  const auto calling = std::ranges::find_if(calling_, [&](const auto& each) {
    const EpollEntry& door = at_.at(each.first);
    return door.peer == number && door.channel == words_channel;
  });
  last.own[static_cast<std::uint32_t>(number)] = rest;  // in case the other side's connection counts
  if (calling == calling_.end()) return;
  unwatch(calling->second.shake.socket());
  acceptor_.see_off(std::move(calling->second.shake), std::move(rest));
  calling_.erase(calling);
}

TcpTransport::TcpPeer& TcpTransport::peer(int number) {
  std::unique_ptr<TcpPeer>& one = peers_[number];
  if (!one) one = std::make_unique<TcpPeer>();
  return *one;
}

void TcpTransport::post_own(const SelfMessage& own) {
  const bool sends = own.into == nullptr;
  const auto other = std::ranges::find_if(own_, [&](const SelfMessage& each) {
    return each.channel == own.channel && each.call_tag == own.call_tag && (each.into == nullptr) != sends;
  });
  if (other == own_.end()) {
    own_.push_back(own);
    return;
  }
  const SelfMessage& from = sends ? own : *other;
  const SelfMessage& to = sends ? *other : own;
  if (from.bytes != to.bytes) {
    wrong_ = text("rank ", me_.rank, " sent ", from.bytes, " bytes to itself, where it receives ", to.bytes);
    return;
  }
  if (from.bytes > 0) std::memcpy(to.into, from.from, from.bytes);
  --from.left->sends;
  --to.left->receives;
  own_.erase(other);
}

void TcpTransport::post_to(const SendDescriptor& each, RoundTag round_tag, LaneRound& round) {
  const auto* const from = static_cast<const std::byte*>(each.data);
  if (each.peer == rank())
    return post_own({channel_of(round_tag), round_tag.call_tag, from, nullptr, each.bytes, &round.left});
  const PostedSend sending{{round_tag.call_tag, each.bytes}, from, &round.left};
  TcpPeer& to = peer(each.peer);
  if (round_tag.is_exchange) {
    to.words.send(sending);
    reach(each.peer, words_channel);
    flush_words(each.peer);
    return;
  }
  to.lanes[static_cast<std::size_t>(round_tag.lane)].send(sending);
  reach(each.peer, static_cast<std::uint32_t>(round_tag.lane));
}

void TcpTransport::post_from(const ReceiveDescriptor& each, RoundTag round_tag, LaneRound& round) {
  static std::byte nowhere;  // an empty message may have no address
  auto* const into = each.data == nullptr ? &nowhere : static_cast<std::byte*>(each.data);
  if (each.peer == rank())
    return post_own({channel_of(round_tag), round_tag.call_tag, nullptr, into, each.bytes, &round.left});
  const PostedReceive want{round_tag.call_tag, into, each.bytes, &round.left};
  TcpPeer& from = peer(each.peer);
  if (!round_tag.is_exchange) return from.lanes[static_cast<std::size_t>(round_tag.lane)].want(want);
  from.words.want(want);
  flush_words(each.peer);  // the message may be offered already
}

void TcpTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                        std::span<const ReceiveDescriptor> receives) {
  const std::lock_guard lock(mutex_);
  if (is_given_up_) throw Error(Code::internal, "messages were posted on a transport that has been given up");
  while (static_cast<std::size_t>(round_tag.lane) >= rounds_.size()) rounds_.emplace_back();
  LaneRound& round = rounds_[static_cast<std::size_t>(round_tag.lane)];
  if (!round.left.none()) throw Error(Code::internal, text("lane ", round_tag.lane, " has a round under way"));
  round.left = {sends.size(), receives.size()};
  round.call_tag = round_tag.call_tag;
  round.across = round_tag.is_exchange;
  round.begun = {};
  round.is_looked_after = false;
  round.peers.clear();
  for (const ReceiveDescriptor& each : receives) post_from(each, round_tag, round);
  for (const SendDescriptor& each : sends) post_to(each, round_tag, round);
  for (const ReceiveDescriptor& each : receives) round.peers.push_back(each.peer);
  for (const SendDescriptor& each : sends) round.peers.push_back(each.peer);
  std::ranges::sort(round.peers);
  round.peers.erase(std::unique(round.peers.begin(), round.peers.end()), round.peers.end());
  std::erase(round.peers, rank());
  if (round_tag.is_exchange) return;
  for (const int number : round.peers) {
    LaneStream& lane = peer(number).lanes[static_cast<std::size_t>(round_tag.lane)];
    if (lane.is_open() && lane.is_sending()) lane.flush();
  }
  if (is_under_way()) hook_.busy();
}

// True if connections are being made, or bytes are not with the kernel yet. Those go on while this thread waits for
// something else.
bool TcpTransport::is_under_way() const {
  return !calling_.empty() || std::ranges::any_of(peers_, [](const auto& each) {
    const auto& [number, one] = each;
    return one->words.has_unsent() ||
           std::ranges::any_of(one->lanes, [](const LaneStream& lane) { return lane.is_sending(); });
  });
}

void TcpTransport::move_beside() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  call_again_for_room();
  look_at_doors();
  for (auto& [number, one] : peers_) {
    for (int lane = 0; lane < lane_count; ++lane) {
      LaneStream& stream = one->lanes[static_cast<std::size_t>(lane)];
      if (!stream.is_sending() || !stream.is_open()) continue;
      const auto outcome = stream.flush();
      if (outcome.bad) bad_ = outcome.bad;
      if (outcome.is_over) close_lane(number, lane, outcome.error);
    }
  }
  if (!is_under_way()) hook_.idle();
}

// Keeps the round under way if a connection has ended: control messages tell which rank is gone, and why.
void TcpTransport::move(int number, int lane) {
  TcpPeer& one = peer(number);
  LaneStream& stream = one.lanes[static_cast<std::size_t>(lane)];
  if (!stream.is_open()) {
    if (stream.is_sending()) reach(number, static_cast<std::uint32_t>(lane));
    return;
  }
  LaneStream::LaneProgress sent;
  if (stream.is_sending()) sent = stream.flush();
  bool is_over = sent.is_over;
  int error = sent.error;
  if (sent.bad) bad_ = sent.bad;
  if (stream.wants()) {
    const auto outcome = stream.receive(window_);
    if (outcome.has_other_length && wrong_.empty())
      wrong_ = text("rank ", number, " sent ", outcome.length, " bytes to rank ", me_.rank, ", which receives ",
                    outcome.wanted);
    if (outcome.bad) bad_ = outcome.bad;
    is_over = is_over || outcome.is_over;
    if (error == 0) error = outcome.error;
  }
  if (is_over) close_lane(number, lane, error);
}

bool TcpTransport::done(int number) {
  const std::lock_guard lock(mutex_);
  LaneRound& round = rounds_[static_cast<std::size_t>(number)];
  if (round.left.none()) return true;
  bool waits_at_doors = round.across;
  if (!round.across) {
    for (const int each : round.peers) {
      move(each, number);
      waits_at_doors = waits_at_doors || !peer(each).lanes[static_cast<std::size_t>(number)].is_open();
    }
  }
  if (waits_at_doors && !round.left.none()) look_at_doors();
  if (round.across) {
    for (const int each : round.peers) {
      const auto& other = peer(each).words.other_length();
      if (other && wrong_.empty())
        wrong_ =
            text("rank ", each, " sent ", other->sent, " bytes to rank ", me_.rank, ", which receives ", other->wanted);
    }
  }
  if (bad_ && bad_->left == &round.left) throw MemoryFault(bad_->at, bad_->bytes, bad_->access);
  if (!wrong_.empty()) throw Error(Code::mismatch, wrong_, "let both sides of a message have the same count and type");
  return round.left.none();
}

// Closes the sockets that carry data, so nothing reads or writes anybody's memory any more.
bool TcpTransport::abandon() {
  const std::lock_guard lock(mutex_);
  is_given_up_ = true;
  for (auto& [number, one] : peers_) {
    for (int lane = 0; lane < lane_count; ++lane) {
      one->lanes[static_cast<std::size_t>(lane)].forget();
      close_lane(number, lane, 0);
    }
    one->words.forget();
  }
  for (LaneRound& round : rounds_) round.left = {};
  own_.clear();
  return true;
}

// Watches only ranks that are awaited for long, because that takes one more connection.
void TcpTransport::look_after(LaneRound& round) {
  if (round.left.none() || round.is_looked_after) return;
  const auto now = Clock::now();
  if (round.begun == Clock::time_point{}) round.begun = now;
  if (now - round.begun < looked_after) return;
  round.is_looked_after = true;
  for (const int each : round.peers) reach(each, words_channel);
}

// Returns nothing to wait for if a message is here already.
std::vector<pollfd> TcpTransport::what_to_wait_for() {
  const std::lock_guard lock(mutex_);
  if (!heard_.empty()) return {};
  std::vector<pollfd> awaited = std::exchange(spare_, {});
  awaited.clear();
  awaited.push_back({doors_.get(), POLLIN, 0});
  for (std::size_t lane = 0; lane < rounds_.size(); ++lane) {
    LaneRound& round = rounds_[lane];
    look_after(round);
    if (round.left.none() || round.across) continue;
    for (const int each : round.peers) {
      const LaneStream& stream = peer(each).lanes[lane];
      if (!stream.is_open()) continue;
      const int events = (stream.wants() && !stream.is_stuck() ? POLLIN : 0) | (stream.is_sending() ? POLLOUT : 0);
      if (events != 0) awaited.push_back({stream.socket().get(), static_cast<short>(events), 0});
    }
  }
  return awaited;
}

void TcpTransport::sleep(std::int64_t nanoseconds) {
  std::vector<pollfd> awaited = what_to_wait_for();
  if (awaited.empty()) return;
  constexpr std::int64_t second = 1'000'000'000;
  const timespec time{static_cast<std::time_t>(nanoseconds / second), static_cast<long>(nanoseconds % second)};
  ::ppoll(awaited.data(), awaited.size(), &time, nullptr);
  const std::lock_guard lock(mutex_);
  spare_ = std::move(awaited);
}

void TcpTransport::tell(int number, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (number == rank()) {
    heard_.push_back({number, std::move(bytes)});
    return;
  }
  TcpPeer& to = peer(number);
  if (to.has_left || to.links[words_channel] == ConnectionState::over) return;  // nobody could receive it
  to.words.say(std::move(bytes));
  reach(number, words_channel);
  flush_words(number);
  if (is_under_way()) hook_.busy();
}

bool TcpTransport::is_said(int number) {
  const std::lock_guard lock(mutex_);
  const auto to = peers_.find(number);
  if (to == peers_.end()) return true;
  const TcpPeer& one = *to->second;
  return !one.words.has_unsent() || one.has_left || one.links[words_channel] == ConnectionState::over;
}

// Waits a little after a failure: a rank that has failed may be in no further call that would move its messages.
void TcpTransport::tell_all(const Bytes& bytes) {
  Transport::tell_all(bytes);
  const auto until = Clock::now() + last_words_take;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_given_up_) return;
      call_again_for_room();
      look_at_doors();
      if (!is_under_way() || Clock::now() > until) return;
    }
    pollfd doors{doors_.get(), POLLIN, 0};
    ::poll(&doors, 1, 1);
  }
}

std::optional<Transport::SmallMessage> TcpTransport::next_heard() {
  if (heard_.empty()) return std::nullopt;
  SmallMessage next = std::move(heard_.front());
  heard_.pop_front();
  return next;
}

// Looks for messages before losses, because the last message of a lost rank says more.
std::optional<Transport::SmallMessage> TcpTransport::hear() {
  const std::lock_guard lock(mutex_);
  if (auto next = next_heard()) return next;
  look_for_lost();
  look_at_doors();
  look_at_hosts();
  if (auto next = next_heard()) return next;
  look_for_breaks();
  look_for_room();
  if (loss_ && !told_of_loss_) say_loss();
  return std::nullopt;
}

// Tells connected ranks now; others get the last words when they call.
void TcpTransport::leave(const Bytes& last_words) {
  const std::lock_guard lock(mutex_);
  if (last_words.empty()) return;
  for (auto& [number, one] : peers_) {
    if (!one->words.is_open()) continue;
    one->words.say(last_words);
    flush_words(number);
  }
  last_words_ = last_words;
}

}  // namespace tcp

std::optional<std::string> why_no_tcp() { return std::nullopt; }

std::shared_ptr<const Secret> key_of_job(Exchange& exchange) {
  constexpr std::size_t length = 32;
  Bytes key(length);
  fill_random(key);
  return std::make_shared<const Secret>(exchange.broadcast("a key for this job", key, 0), "this job");
}

Tcp::Tcp(const TcpOptions& options) {
  if (!options.key) throw Error(Code::internal, "sockets without a key");
  shared_ = std::make_shared<Shared>(options);
}
Tcp::~Tcp() = default;
bool Tcp::has_lost() const { return shared_->has_lost; }

std::unique_ptr<Transport> Tcp::transport(Exchange& exchange, LostMemberLookup lost) {
  return std::make_unique<tcp::TcpTransport>(shared_, exchange, std::move(lost));
}

}  // namespace lockstep
