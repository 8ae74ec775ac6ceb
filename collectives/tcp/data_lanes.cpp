// SPDX-License-Identifier: Apache-2.0
// Moves the data of rounds, and handles the end of a data connection.
#include "collectives/tcp/data_lanes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

// Sets the size of a read in bytes; a smaller message is read together with its header.
constexpr std::size_t window_bytes = 48U << 10U;

}  // namespace

DataLanes::DataLanes(const TcpMembers& members, PeerFailures& failures, PeerConnections& connections, EventPoll& poll,
                     MessageErrors& errors)
    : members_(members),
      failures_(failures),
      connections_(connections),
      poll_(poll),
      errors_(errors),
      window_(window_bytes) {}

DataLanes::PeerLanes& DataLanes::lanes_of(int peer) {
  std::unique_ptr<PeerLanes>& lanes = peers_[peer];
  if (!lanes) lanes = std::make_unique<PeerLanes>();
  return *lanes;
}

void DataLanes::open(int peer, std::size_t lane, Descriptor socket) {
  poll_.add(socket.get(), {EventSource::lane, peer, static_cast<std::uint32_t>(lane)}, EPOLLRDHUP);
  stream(peer, lane).open(std::move(socket));
  move(peer, lane);
}

void DataLanes::post_send(int peer, std::size_t lane, const PostedSend& sending) {
  stream(peer, lane).post_send(sending);
  connections_.connect(peer, static_cast<std::uint32_t>(lane));
}

// Keeps the round under way if a connection has ended: control messages tell which rank is gone, and why.
bool DataLanes::move(int peer, std::size_t lane) {
  LaneStream& stream = this->stream(peer, lane);
  if (!stream.is_open()) {
    if (stream.is_sending()) connections_.connect(peer, static_cast<std::uint32_t>(lane));
    return false;
  }
  LaneStream::LaneProgress sent;
  if (stream.is_sending()) sent = stream.flush();
  bool is_over = sent.is_over;
  int error = sent.error;
  errors_.report(sent.bad);
  if (stream.is_receiving()) {
    const auto outcome = stream.receive(window_);
    if (outcome.has_other_length) errors_.report_length(peer, outcome.length, members_.rank(), outcome.wanted);
    errors_.report(outcome.bad);
    is_over = is_over || outcome.is_over;
    if (error == 0) error = outcome.error;
  }
  if (is_over) end(peer, lane, error);
  return !is_over;
}

void DataLanes::flush(int peer, std::size_t lane) {
  LaneStream& stream = this->stream(peer, lane);
  if (stream.is_open() && stream.is_sending()) stream.flush();
}

void DataLanes::flush_all() {
  for (auto& [peer, lanes] : peers_) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      LaneStream& stream = lanes->streams[lane];
      if (!stream.is_sending() || !stream.is_open()) continue;
      const auto outcome = stream.flush();
      errors_.report(outcome.bad);
      if (outcome.is_over) end(peer, lane, outcome.error);
    }
  }
}

bool DataLanes::is_sending() const {
  return std::ranges::any_of(peers_, [](const auto& each) {
    return std::ranges::any_of(each.second->streams, [](const LaneStream& lane) { return lane.is_sending(); });
  });
}

void DataLanes::stop_watching(int peer, std::size_t lane) {
  poll_.remove(stream(peer, lane).socket().get());
  connections_.connect(peer, control_channel);
}

void DataLanes::end(int peer, std::size_t lane, int error) {
  PeerLanes& lanes = lanes_of(peer);
  LaneStream& stream = lanes.streams[lane];
  if (!stream.is_open()) return;
  if (poll_.contains(stream.socket().get())) poll_.remove(stream.socket().get());
  stream.release();
  connections_.set_over(peer, static_cast<std::uint32_t>(lane));
  if (is_given_up_) return;
  lanes.broken[lane] = BrokenConnection{error, Clock::now()};
  has_broken_ = true;
  connections_.connect(peer, control_channel);
}

void DataLanes::check_broken(const std::deque<LaneRound>& rounds) {
  if (!has_broken_ || is_given_up_ || failures_.has_loss()) return;
  const auto now = Clock::now();
  const auto since_check = now - std::exchange(broken_checked_at_, now);
  for (std::size_t lane = 0; lane < rounds.size(); ++lane) {
    const LaneRound& round = rounds[lane];
    if (round.left.none() || round.is_message) continue;
    for (const int each : round.peers) check_broken(each, lane, now, since_check);
  }
}

// Throws if a connection has ended that the round needs. If its rank has left, that is the error. A live rank has 5 s
// to say why. Time in which this member checked nothing does not count.
void DataLanes::check_broken(int peer, std::size_t lane, Clock::time_point now, Clock::duration since_check) {
  constexpr std::chrono::seconds explained_in{5};
  constexpr std::chrono::seconds checks_apart{1};
  PeerLanes& lanes = lanes_of(peer);
  auto& broken = lanes.broken[lane];
  if (broken && since_check > checks_apart) broken->at = std::min(now, broken->at + since_check);
  const bool is_needed = lanes.streams[lane].is_receiving() || lanes.streams[lane].is_sending();
  if (!broken || !is_needed || broken->at > now - explained_in) return;
  const bool has_left = failures_.has_left(peer);
  const bool is_known_to_live = connections_.state(peer, control_channel) == ConnectionState::open;
  if (!has_left && !is_known_to_live && broken->at > now - explained_in - failures_.max_silence())
    return;  // its host may be gone
  throw Error(
      has_left ? Code::peer_failed : Code::system,
      text("the connection to ", members_.roster().name_of(peer), has_left ? " is over" : " broke", ": ",
           broken->error == 0 ? "it was closed on the way" : std::strerror(broken->error), "; that rank ",
           has_left ? "has left without sending an awaited message" : "is alive and gave no reason"),
      "see that rank's own error; check the firewall (it may drop idle connections), links and switches between "
      "the two hosts");
}

bool DataLanes::add_awaited(std::size_t lane, std::span<const int> peers, std::vector<pollfd>& awaited) {
  bool is_short = false;
  for (const int each : peers) {
    const LaneStream& stream = this->stream(each, lane);
    if (!stream.is_open()) continue;
    is_short = is_short || stream.is_short();
    const int events = (stream.is_receiving() && !stream.is_stuck() ? POLLIN : 0) | (stream.is_sending() ? POLLOUT : 0);
    if (events != 0) awaited.push_back({stream.socket().get(), static_cast<short>(events), 0});
  }
  return is_short;
}

void DataLanes::give_up() {
  is_given_up_ = true;
  for (auto& [peer, lanes] : peers_) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      lanes->streams[lane].drop_posted();
      end(peer, lane, 0);
    }
  }
}

void DataLanes::close(Acceptor& acceptor) {
  for (auto& [peer, lanes] : peers_) {
    for (LaneStream& lane : lanes->streams) {
      if (lane.is_open() && has_unread(lane.socket())) acceptor.close_connection(lane.release(), {});
    }
  }
}

}  // namespace lockstep::tcp
