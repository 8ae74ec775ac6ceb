// SPDX-License-Identifier: Apache-2.0
// Posts the rounds of the transport over sockets, waits for them, and leads each event to the connection of its peer.
#include "collectives/tcp/tcp_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "collectives/engine/round_rules.hpp"
#include "collectives/tcp/transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace tcp {
namespace {

constexpr std::chrono::milliseconds max_tell_all{100};  // for messages to ranks without a connection
constexpr std::chrono::milliseconds watched_after{50};  // an awaited rank has to show that it lives
constexpr std::uint64_t message_channel = lane_count;

std::uint64_t channel_of(RoundTag round_tag) {
  return round_tag.is_message ? message_channel : static_cast<std::uint64_t>(round_tag.lane);
}

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<Tcp::Shared> shared, TcpMembers members, LostMemberLookup lookup)
    : shared_(std::move(shared)),
      members_(std::move(members)),
      failures_(*shared_, members_, std::move(lookup)),
      connections_(*shared_, members_, failures_, poll_),
      data_(members_, failures_, connections_, poll_, errors_),
      control_(members_, failures_, connections_, poll_, errors_) {}

TcpTransport::~TcpTransport() {
  const std::lock_guard lock(mutex_);
  try {
    data_.close(shared_->acceptor);
    shared_->acceptor.close(members_.self(), control_channel, control_.close(shared_->acceptor));
  } catch (const std::bad_alloc&) {
    return;  // callers receive nothing then
  }
}

std::unique_ptr<Transport> TcpTransport::regroup(std::span<const int> members, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<TcpTransport>(shared_, members_.among(members, number, *shared_->acceptor.key()),
                                        LostMemberLookup{});
}

void TcpTransport::post_send(const SendDescriptor& each, RoundTag round_tag, LaneRound& round) {
  const auto* const from = static_cast<const std::byte*>(each.data);
  if (each.peer == rank())
    return to_self_.post({channel_of(round_tag), round_tag.call_tag, from, nullptr, each.bytes, &round.left}, rank(),
                         errors_);
  const PostedSend sending{{round_tag.call_tag, each.bytes}, from, &round.left};
  if (round_tag.is_message) return control_.post_send(each.peer, sending);
  data_.post_send(each.peer, static_cast<std::size_t>(round_tag.lane), sending);
}

void TcpTransport::post_receive(const ReceiveDescriptor& each, RoundTag round_tag, LaneRound& round) {
  static std::byte nowhere;  // an empty message may have no address
  auto* const into = each.data == nullptr ? &nowhere : static_cast<std::byte*>(each.data);
  if (each.peer == rank())
    return to_self_.post({channel_of(round_tag), round_tag.call_tag, nullptr, into, each.bytes, &round.left}, rank(),
                         errors_);
  const PostedReceive want{round_tag.call_tag, into, each.bytes, &round.left};
  if (round_tag.is_message) return control_.post_receive(each.peer, want);
  data_.post_receive(each.peer, static_cast<std::size_t>(round_tag.lane), want);
}

// Receives are posted first, so that data which has come already needs no second look. It then sends as much as the
// kernel takes.
void TcpTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                        std::span<const ReceiveDescriptor> receives) {
  const std::lock_guard lock(mutex_);
  if (is_given_up_) throw round_rules::transport_is_given_up();
  const auto lane = static_cast<std::size_t>(round_tag.lane);
  while (lane >= rounds_.size()) rounds_.emplace_back();
  LaneRound& round = rounds_[lane];
  if (!round.left.none()) throw round_rules::lane_is_busy(round_tag.lane);
  round.left = {sends.size(), receives.size()};
  round.is_message = round_tag.is_message;
  round.begun = {};
  round.is_watched = false;
  round.peers.clear();
  for (const ReceiveDescriptor& each : receives) post_receive(each, round_tag, round);
  for (const SendDescriptor& each : sends) post_send(each, round_tag, round);
  for (const ReceiveDescriptor& each : receives) round.peers.push_back(each.peer);
  for (const SendDescriptor& each : sends) round.peers.push_back(each.peer);
  std::ranges::sort(round.peers);
  round.peers.erase(std::unique(round.peers.begin(), round.peers.end()), round.peers.end());
  std::erase(round.peers, rank());
  if (round_tag.is_message) return;
  for (const int each : round.peers) data_.flush(each, lane);
  if (is_under_way()) hook_.busy();
}

// Moves the round's own connections directly. Events are handled only if a connection is missing, or for exchanges.
bool TcpTransport::done(int number) {
  const std::lock_guard lock(mutex_);
  const auto lane = static_cast<std::size_t>(number);
  LaneRound& round = rounds_[lane];
  if (round.left.none()) return true;
  bool needs_events = round.is_message;
  if (!round.is_message) {
    for (const int each : round.peers) {
      const bool is_open = data_.move(each, lane);
      needs_events = needs_events || !is_open;
    }
  }
  if (needs_events && !round.left.none()) handle_events();
  if (round.is_message) control_.check_lengths(round.peers);
  errors_.check(round.left);
  return round.left.none();
}

// Closes the sockets that carry data, so nothing reads or writes anybody's memory any more.
bool TcpTransport::abandon() {
  const std::lock_guard lock(mutex_);
  is_given_up_ = true;
  connections_.give_up_data();
  data_.give_up();
  control_.give_up();
  for (LaneRound& round : rounds_) round.left = {};
  to_self_.drop_posted();
  return true;
}

void TcpTransport::handle_events() {
  poll_.handle_events(
      [this](int descriptor, const EventKey& key, std::uint32_t events) { handle_event(descriptor, key, events); });
}

// Passes an event to the owner of its descriptor.
void TcpTransport::handle_event(int descriptor, const EventKey& key, std::uint32_t events) {
  switch (key.source) {
    case EventSource::acceptor:
      return shared_->acceptor.progress();
    case EventSource::incoming:
      try {
        while (auto opened = connections_.accept_next()) open(std::move(*opened));
      } catch (...) {
        connections_.drop_callers();  // no event would bring them back
        throw;
      }
      return;
    case EventSource::handshake:
      if (auto opened = connections_.advance(descriptor)) open(std::move(*opened));
      return;
    case EventSource::control:
      return control_.move(key.peer);
    case EventSource::process:
      return control_.end_process(descriptor);
    case EventSource::lane:
      if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) data_.stop_watching(key.peer, key.channel);
  }
}

// Hands a connection over to its channel: control messages, or a lane.
void TcpTransport::open(OpenedConnection connection) {
  if (connection.channel == control_channel) return control_.open(connection.peer, std::move(connection.socket));
  data_.open(connection.peer, connection.channel, std::move(connection.socket));
}

// True if something would stop if nobody called progress().
bool TcpTransport::is_under_way() const {
  return connections_.is_connecting() || control_.has_unsent() || data_.is_sending();
}

// Runs while this thread waits elsewhere. If another thread has the mutex, that one makes progress.
void TcpTransport::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  connections_.retry();
  handle_events();
  data_.flush_all();
  if (!is_under_way()) hook_.idle();
}

// Watches only ranks that are awaited for long, because that takes one more connection.
void TcpTransport::watch_peers(LaneRound& round) {
  if (round.left.none() || round.is_watched) return;
  const auto now = Clock::now();
  if (round.begun == Clock::time_point{}) round.begun = now;
  if (now - round.begun < watched_after) return;
  round.is_watched = true;
  for (const int each : round.peers) connections_.connect(each, control_channel, true);
}

// Returns the descriptors that end a sleep; empty if there is a message to handle already.
std::vector<pollfd> TcpTransport::awaited_descriptors(bool& is_short) {
  const std::lock_guard lock(mutex_);
  if (control_.has_next()) return {};
  std::vector<pollfd> awaited = std::exchange(spare_, {});
  awaited.clear();
  awaited.push_back({poll_.descriptor().get(), POLLIN, 0});
  for (std::size_t lane = 0; lane < rounds_.size(); ++lane) {
    LaneRound& round = rounds_[lane];
    watch_peers(round);
    if (round.left.none()) continue;
    const auto is_short_to = [this](int peer) {
      const StreamSocket* const socket = control_.socket_of(peer);
      return socket != nullptr && socket->is_short();
    };
    const bool lacks_memory = round.is_message ? std::ranges::any_of(round.peers, is_short_to)
                                               : data_.add_awaited(lane, round.peers, awaited);
    is_short = is_short || lacks_memory;
  }
  return awaited;
}

void TcpTransport::sleep(std::int64_t nanoseconds) {
  constexpr std::int64_t retry_ns = 1'000'000;
  bool is_short = false;
  std::vector<pollfd> awaited = awaited_descriptors(is_short);
  if (awaited.empty()) return;
  const timespec time = round_rules::to_timespec(is_short ? std::min(nanoseconds, retry_ns) : nanoseconds);
  ::ppoll(awaited.data(), is_short ? 0 : awaited.size(), &time, nullptr);  // a lack of memory would end it at once
  const std::lock_guard lock(mutex_);
  spare_ = std::move(awaited);
}

void TcpTransport::send_control(int peer, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  control_.send_control(peer, std::move(bytes));
  if (is_under_way()) hook_.busy();
}

bool TcpTransport::is_control_sent(int peer) {
  const std::lock_guard lock(mutex_);
  return control_.is_told(peer);
}

// Waits a little after a failure: a rank that has failed may be in no further call that would move its messages.
void TcpTransport::send_control_to_all(const Bytes& bytes) {
  Transport::send_control_to_all(bytes);
  const auto until = Clock::now() + max_tell_all;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_given_up_) return;
      connections_.retry();
      handle_events();
      if (!is_under_way() || Clock::now() > until) return;
    }
    pollfd events{poll_.descriptor().get(), POLLIN, 0};
    ::poll(&events, 1, 1);
  }
}

// Looks for messages before losses, because the last message of a lost rank says more.
std::optional<Transport::ReceivedControl> TcpTransport::receive_control() {
  const std::lock_guard lock(mutex_);
  if (auto next = control_.next()) return next;
  failures_.ask_lookup();
  handle_events();
  check_hosts();
  if (auto next = control_.next()) return next;
  data_.check_broken(rounds_);
  check_descriptors();
  failures_.report_loss();
  return std::nullopt;
}

// If data is under way, the kernel does not probe the host, and would resend the data for a quarter of an hour. So this
// asks the kernel how long each host has not answered.
void TcpTransport::check_hosts() {
  constexpr std::chrono::milliseconds between_checks{500};
  const auto now = Clock::now();
  if (now - hosts_checked_at_ < between_checks) return;
  hosts_checked_at_ = now;
  connections_.for_each_peer([this](int peer) {
    if (!failures_.is_here(peer)) return;
    bool is_awaited = false;
    auto last = std::chrono::milliseconds::max();
    const auto ask = [&](const Descriptor& socket) {
      const auto answers = answers_of(socket);
      is_awaited = is_awaited || (answers && answers->are_awaited);
      if (answers) last = std::min(last, answers->last);
    };
    if (const StreamSocket* const socket = control_.socket_of(peer)) ask(socket->descriptor());
    data_.for_each_socket(peer, ask);
    failures_.note_silence(peer, is_awaited ? last : std::chrono::milliseconds(0));
  });
}

// Throws if this process lacks descriptors, since a round that needs a connection would wait forever.
void TcpTransport::check_descriptors() {
  constexpr std::string_view remedy = "raise the limit of open files (ulimit -Hn), or open fewer in this process";
  connections_.retry();
  const int cannot_connect = connections_.lasting_shortage();
  const int cannot_accept = shared_->acceptor.accept_error();
  if ((cannot_connect == 0 && cannot_accept == 0) || is_given_up_) return;
  for (std::size_t lane = 0; lane < rounds_.size(); ++lane) {
    const LaneRound& round = rounds_[lane];
    const auto channel = round.is_message ? control_channel : static_cast<std::uint32_t>(lane);
    const bool lacks_one = !round.left.none() && std::ranges::any_of(round.peers, [&](int each) {
      return connections_.state(each, channel) != ConnectionState::open;
    });
    if (!lacks_one) continue;
    if (cannot_connect != 0) throw system_error("making a connection to another member", cannot_connect, remedy);
    throw system_error("accepting connections of other members", cannot_accept, remedy);
  }
}

// Tells connected ranks now; others get the message when they call.
void TcpTransport::leave(const Bytes& leave_message) {
  const std::lock_guard lock(mutex_);
  if (!leave_message.empty()) control_.leave(leave_message);
}

Transport::PeerState TcpTransport::peer_state(int peer) {
  const std::lock_guard lock(mutex_);
  return failures_.peer_state(peer);
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
  return std::make_unique<tcp::TcpTransport>(
      shared_, tcp::TcpMembers(shared_->acceptor.address(), shared_->label, exchange), std::move(lost));
}

}  // namespace lockstep
