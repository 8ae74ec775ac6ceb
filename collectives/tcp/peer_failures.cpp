// SPDX-License-Identifier: Apache-2.0
// Probes the ports of lost ranks, watches silent hosts, and reports losses.
#include "collectives/tcp/peer_failures.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {

using PeerState = Transport::PeerState;

PeerFailures::PeerFailures(Tcp::Shared& shared, const TcpMembers& members, LostMemberLookup lookup)
    : shared_(shared), members_(members), lookup_(std::move(lookup)) {}

bool PeerFailures::has_left(int peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.has_left;
}

bool PeerFailures::is_here(int peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() || (!found->second.has_left && found->second.peer_state == PeerState::reachable);
}

PeerState PeerFailures::peer_state(int peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return PeerState::reachable;
  PeerStatus& status = found->second;
  if (status.has_left) return PeerState::ended;
  if (status.peer_state == PeerState::reachable && status.silence) find_peer_state(peer, status);
  if (status.peer_state != PeerState::reachable) shared_.has_lost = true;
  return status.peer_state;
}

// Connects to the port again and again, since an ending process closes one socket after the other.
void PeerFailures::find_peer_state(int peer, PeerStatus& status) {
  constexpr std::chrono::milliseconds between_checks{20};
  const auto now = Clock::now();
  SilenceCheck& silence = *status.silence;
  if (now - silence.checked_at < between_checks) return;
  silence.checked_at = now;
  int error = 0;
  if (silence.probe) {
    error = error_of(silence.probe);
  } else {
    auto socket = connect(members_.address_of(peer), members_.is_on_this_host(peer), error);
    if (socket) silence.probe = std::move(*socket);
  }
  if (error == ECONNREFUSED || members_.roster().end_of(peer))
    status.peer_state = PeerState::ended;
  else if (error != 0)
    silence.probe.close();
  else if (now - silence.since > shared_.silence)
    status.peer_state = PeerState::silent;
  if (status.peer_state != PeerState::reachable) status.silence.reset();
}

void PeerFailures::lose(int peer, std::string_view cause, int error, bool is_cut) {
  PeerStatus& status = peers_[peer];
  if (status.has_left) return;
  if (status.peer_state == PeerState::reachable && (error == ETIMEDOUT || has_no_route(error)))
    status.peer_state = PeerState::silent;
  if (status.peer_state == PeerState::reachable && error == ECONNREFUSED) status.peer_state = PeerState::ended;
  if (status.peer_state == PeerState::reachable && !status.silence) status.silence = SilenceCheck{Clock::now(), {}, {}};
  if (loss_ && loss_->number >= 0) return;
  const auto end = members_.roster().end_of(peer);
  const auto at = loss_ ? loss_->at : Clock::now();
  loss_ = LostPeer{peer, end ? *end : text(members_.roster().name_of(peer), " is gone: ", cause), end.has_value(), at};
  if (is_cut) loss_->cut = cause;
  if (!no_mpi_) no_mpi_.emplace();
}

std::string PeerFailures::silence_of_host(int error) const {
  return text("nothing has come from its host for ",
              format_duration(std::chrono::duration_cast<Duration>(shared_.silence)), ": ", std::strerror(error));
}

void PeerFailures::note_silence(int peer, std::chrono::milliseconds unanswered) {
  constexpr std::chrono::milliseconds logged_after{2000};
  PeerStatus& status = peers_[peer];
  if (unanswered > shared_.silence) return lose(peer, silence_of_host(ETIMEDOUT), ETIMEDOUT);
  log_silence(peer, status, unanswered > std::min(logged_after, shared_.silence / 2));
}

// Logs once for all ranks on one host.
void PeerFailures::log_silence(int peer, PeerStatus& status, bool is_silent) {
  if (std::exchange(status.is_silent, is_silent) == is_silent) return;
  const bool is_known = std::ranges::any_of(peers_, [&](const auto& each) {
    const auto& [other, its] = each;
    return other != peer && its.is_silent && members_.address_of(other).is_on_host_of(members_.address_of(peer));
  });
  if (is_known) return;
  const std::string name = members_.roster().name_of(peer);
  if (!is_silent) return shared_.log.info(text("the host of ", name, " answers again"));
  shared_.log.warn(text("the host of ", name, " has been silent; waiting for it, ",
                        format_duration(std::chrono::duration_cast<Duration>(shared_.silence)),
                        " at most -> check that host and the link to it"));
}

void PeerFailures::ask_lookup() {
  constexpr unsigned turns_between = 16;
  if (!lookup_ || loss_ || lookup_turns_++ % turns_between != 0) return;
  auto lost = lookup_();
  if (!lost) return;
  loss_ = LostPeer{lost->rank, std::move(lost->words), lost->says_how, Clock::now()};
  no_mpi_.emplace();
}

// Waits a little, because the lost rank's last message may still be on its way, and says more. A rank on its host knows
// how it ended, and may report first.
void PeerFailures::report_loss() {
  constexpr std::chrono::milliseconds message_takes{25};
  constexpr std::chrono::milliseconds far_message_takes{50};  // Open MPI 4.1 ends the others 0.1 s after the first
  constexpr std::chrono::milliseconds neighbours_take{200};
  if (!loss_ || is_reported_) return;
  const int number = loss_->number;
  if (number >= 0 && has_left(number)) {
    no_mpi_.reset();
    return loss_.reset();
  }
  const Roster& roster = members_.roster();
  if (const auto end = number >= 0 && !loss_->says_how ? roster.end_of(number) : std::nullopt) {
    loss_->cause = *end;
    loss_->says_how = true;
  }
  const bool is_cut = !loss_->cut.empty() && !loss_->says_how;
  if (is_cut && peers_[number].silence) find_peer_state(number, peers_[number]);
  const bool is_local = number >= 0 && roster.process_of(number);
  const bool others_know = number >= 0 && !is_local && roster.has_neighbour(number);
  const auto pause = loss_->says_how ? message_takes : others_know ? neighbours_take : far_message_takes;
  if (Clock::now() - loss_->at <= pause) return;
  is_reported_ = shared_.has_lost = true;
  if (is_cut) explain_cut();
  if (const auto lost = lookup_ && !loss_->says_how ? lookup_() : std::nullopt)
    loss_->cause = lost->words;  // this knows more than the end of a connection
  throw Error(Code::peer_failed, loss_->cause, loss_->remedy);
}

// A closed connection says nothing about its process, so this asks at the process's port.
void PeerFailures::explain_cut() {
  const int number = loss_->number;
  PeerStatus& status = peers_[number];
  const std::string name = members_.roster().name_of(number);
  const auto& process = members_.roster().process_of(number);
  constexpr int checks = 2;  // the first one may only see its own attempt fail
  for (int i = 0; i < checks && status.silence && status.peer_state == PeerState::reachable; ++i) {
    status.silence->checked_at = {};
    find_peer_state(number, status);
  }
  constexpr int a_moment_ms = 20;  // a process closes its connections a little before the system reports its end
  if (status.peer_state == PeerState::ended || (process && process->has_ended(a_moment_ms))) {
    loss_->cause = text(name, " is gone: its process has exited or was killed");
    return;
  }
  const std::string address = to_text(members_.address_of(number));
  const bool answers = status.silence && status.silence->probe && is_connected(status.silence->probe);
  const std::string known = process   ? ", though its process lives, on this host"
                            : answers ? text(", though its process lives: ", address, " still takes connections")
                                      : text("; whether its process lives is not known: ", address, " does not answer");
  loss_->cause = text("the connection to ", name, ' ', loss_->cut, known);
  loss_->remedy = "see that process's own error; check the firewall, links and switches between the two hosts";
}

}  // namespace lockstep::tcp
