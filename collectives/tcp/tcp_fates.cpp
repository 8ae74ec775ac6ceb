// SPDX-License-Identifier: Apache-2.0
// Who is gone, and how far that is known; and how those that are left find each other anew. A connection that ends
// says that a process has ended, unless something between the hosts has ended it: then that process's port is knocked
// at, where nobody listens any more, as its own kernel says.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "collectives/tcp/transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep::tcp {

Descriptor TcpTransport::place_to_wait() {
  Descriptor doors = made([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!doors) throw system_error("making a place to wait at", errno, "look how many descriptors are left (ulimit -n)");
  return doors;
}

TcpTransport::TcpTransport(std::shared_ptr<Tcp::Shared> shared, const Desk& me, std::vector<Place> places,
                           Roster roster)
    : shared_(std::move(shared)),
      reception_(shared_->reception),
      me_(me),
      places_(std::move(places)),
      roster_(std::move(roster)),
      doors_(place_to_wait()),
      window_(window_bytes) {
  open_doors();
}

void TcpTransport::open_doors() {
  callers_ = reception_.open(me_);
  watch(reception_.door(), {Door::Kind::reception}, EPOLLIN);
  watch(callers_->bell(), {Door::Kind::callers}, EPOLLIN);
}

// The number of their meeting follows from this one's and from who they are, by the key.
std::unique_ptr<Transport> TcpTransport::regroup(std::span<const int> members, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Writer words;
  words.put(std::string_view("lockstep regroup")).put(std::span<const std::byte>(me_.meeting)).put(number);
  std::vector<Place> places;
  places.reserve(members.size());
  for (const int each : members) {
    words.put(each);
    places.push_back(places_.at(static_cast<std::size_t>(each)));
  }
  const Mac mac = reception_.key()->mac(words.take());
  Desk me{.rank = static_cast<std::uint32_t>(std::ranges::find(members, rank()) - members.begin())};
  std::copy_n(mac.begin(), me.meeting.size(), me.meeting.begin());
  return std::make_unique<TcpTransport>(shared_, me, std::move(places), roster_.among(members));
}

Transport::Fate TcpTransport::fate(int number) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  if (found == peers_.end()) return Fate::here;
  Peer& one = *found->second;
  if (one.has_left) return Fate::ended;
  if (one.fate == Fate::here && one.silence) find_fate(number, one);
  if (one.fate != Fate::here) shared_->has_lost = true;
  return one.fate;
}

// Whether somebody listens there is asked again and again, since a process that is ending closes one thing after the
// other.
void TcpTransport::find_fate(int number, Peer& one) {
  constexpr std::chrono::milliseconds between_looks{20};
  const auto now = Clock::now();
  Silence& silence = *one.silence;
  if (now - silence.looked_at < between_looks) return;
  silence.looked_at = now;
  int error = 0;
  if (silence.knocking) {
    error = error_of(silence.knocking);
  } else {
    const Place& place = places_[static_cast<std::size_t>(number)];
    auto socket = connect(place, place.is_on_host_of(reception_.place()), error);
    if (socket) silence.knocking = std::move(*socket);
  }
  if (error == ECONNREFUSED || roster_.end_of(number))
    one.fate = Fate::ended;
  else if (error != 0)
    silence.knocking.close();
  else if (now - silence.since > shared_->silence)
    one.fate = Fate::silent;
  if (one.fate != Fate::here) one.silence.reset();
}

void TcpTransport::lose(int number, std::string_view why, int error) {
  Peer& one = peer(number);
  if (one.has_left) return;
  if (one.fate == Fate::here && (error == ETIMEDOUT || is_no_way(error))) one.fate = Fate::silent;
  if (one.fate == Fate::here && error == ECONNREFUSED) one.fate = Fate::ended;
  if (one.fate == Fate::here && !one.silence) one.silence = Silence{Clock::now(), {}, {}};
  if (loss_ && loss_->number >= 0) return;
  const auto end = roster_.end_of(number);
  const auto at = loss_ ? loss_->at : Clock::now();
  loss_ = Loss{number, end ? *end : text(name_of(number), " is gone: ", why), end.has_value(), at};
}

}  // namespace lockstep::tcp
