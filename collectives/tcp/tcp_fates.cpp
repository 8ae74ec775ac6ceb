// SPDX-License-Identifier: Apache-2.0
// Finds out which ranks are gone, and lets the survivors find each other again. A connection ends if its process ends,
// or if something between the hosts cuts it. To tell them apart, it connects to the process's port: an ended process
// refuses, by its own kernel.
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

TcpTransport::TcpTransport(std::shared_ptr<Tcp::Shared> shared, const MemberId& me,
                           std::vector<ListeningAddress> places, Roster roster)
    : shared_(std::move(shared)),
      acceptor_(shared_->acceptor),
      me_(me),
      places_(std::move(places)),
      roster_(std::move(roster)),
      doors_(place_to_wait()),
      window_(window_bytes) {
  open_doors();
}

void TcpTransport::open_doors() {
  at_[acceptor_.door().get()] = {EpollTarget::acceptor};
  acceptor_.let_wait(doors_);
  incoming_ = acceptor_.open(me_);
  watch(incoming_->bell(), {EpollTarget::incoming}, EPOLLIN);
}

// Derives the new transport's nonce from this one's and from the members, by the key; so nobody needs to ask.
std::unique_ptr<Transport> TcpTransport::regroup(std::span<const int> members, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Writer words;
  words.put(std::string_view("lockstep regroup")).put(std::span<const std::byte>(me_.meeting)).put(number);
  std::vector<ListeningAddress> places;
  places.reserve(members.size());
  for (const int each : members) {
    words.put(each);
    places.push_back(places_.at(static_cast<std::size_t>(each)));
  }
  const Mac mac = acceptor_.key()->mac(words.take());
  MemberId me{.rank = static_cast<std::uint32_t>(std::ranges::find(members, rank()) - members.begin())};
  std::copy_n(mac.begin(), me.meeting.size(), me.meeting.begin());
  return std::make_unique<TcpTransport>(shared_, me, std::move(places), roster_.among(members));
}

Transport::Fate TcpTransport::fate(int number) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  if (found == peers_.end()) return Fate::here;
  TcpPeer& one = *found->second;
  if (one.has_left) return Fate::ended;
  if (one.fate == Fate::here && one.silence) find_fate(number, one);
  if (one.fate != Fate::here) shared_->has_lost = true;
  return one.fate;
}

// Connects to the port again and again, since an ending process closes one socket after the other.
void TcpTransport::find_fate(int number, TcpPeer& one) {
  constexpr std::chrono::milliseconds between_looks{20};
  const auto now = Clock::now();
  SilenceCheck& silence = *one.silence;
  if (now - silence.looked_at < between_looks) return;
  silence.looked_at = now;
  int error = 0;
  if (silence.knocking) {
    error = error_of(silence.knocking);
  } else {
    const ListeningAddress& place = places_[static_cast<std::size_t>(number)];
    auto socket = connect(place, place.is_on_host_of(acceptor_.place()), error);
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

// A closed connection says nothing about its process, so this asks at the process's port.
void TcpTransport::look_why_cut() {
  const int number = loss_->number;
  TcpPeer& one = peer(number);
  const std::string name = name_of(number);
  const auto& process = roster_.process_of(number);
  constexpr int looks = 2;  // the first one may only see its own attempt fail
  for (int i = 0; i < looks && one.silence && one.fate == Fate::here; ++i) {
    one.silence->looked_at = {};
    find_fate(number, one);
  }
  constexpr int a_moment_ms = 20;  // a process closes its connections a little before the system reports its end
  if (one.fate == Fate::ended || (process && process->has_ended(a_moment_ms))) {
    loss_->why = text(name, " is gone: its process has ended, or was ended");
    return;
  }
  const std::string place = to_text(places_[static_cast<std::size_t>(number)]);
  const bool answers = one.silence && one.silence->knocking && is_connected(one.silence->knocking);
  const std::string known = process   ? ", though its process lives, on this host"
                            : answers ? text(", though its process lives: ", place, " still takes connections")
                                      : text("; whether its process lives is not known: ", place, " does not answer");
  loss_->why = text("the connection to ", name, ' ', loss_->cut, known);
  loss_->mend = "look at what that process says itself, and at what is between the two: a firewall, a link, a switch";
}

void TcpTransport::lose(int number, std::string_view why, int error, bool is_cut) {
  TcpPeer& one = peer(number);
  if (one.has_left) return;
  if (one.fate == Fate::here && (error == ETIMEDOUT || is_no_way(error))) one.fate = Fate::silent;
  if (one.fate == Fate::here && error == ECONNREFUSED) one.fate = Fate::ended;
  if (one.fate == Fate::here && !one.silence) one.silence = SilenceCheck{Clock::now(), {}, {}};
  if (loss_ && loss_->number >= 0) return;
  const auto end = roster_.end_of(number);
  const auto at = loss_ ? loss_->at : Clock::now();
  loss_ = LostPeer{number, end ? *end : text(name_of(number), " is gone: ", why), end.has_value(), at};
  if (is_cut) loss_->cut = why;
}

}  // namespace lockstep::tcp
