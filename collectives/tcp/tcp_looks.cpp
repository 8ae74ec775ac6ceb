// SPDX-License-Identifier: Apache-2.0
// Holds the checks that a rank makes while it waits: silent hosts, broken connections, missing descriptors.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/tcp/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {

void TcpTransport::look_for_lost() {
  constexpr unsigned between_looks = 16;
  if (!lost_ || loss_ || turns_++ % between_looks != 0) return;
  if (auto lost = lost_()) loss_ = LostPeer{lost->rank, std::move(lost->words), lost->says_how, Clock::now()};
}

// Reports a loss after a pause. The lost rank's last message may still be on its way, and says more. A rank on its host
// knows how it ended, and may report first.
void TcpTransport::say_loss() {
  constexpr std::chrono::milliseconds words_take{25};
  constexpr std::chrono::milliseconds far_words_take{50};  // Open MPI 4.1 ends the others 0.1 s after the first
  constexpr std::chrono::milliseconds neighbours_take{200};
  const int number = loss_->number;
  if (number >= 0 && peer(number).has_left) return loss_.reset();
  if (const auto end = number >= 0 && !loss_->says_how ? roster_.end_of(number) : std::nullopt) {
    loss_->why = *end;
    loss_->says_how = true;
  }
  const bool is_cut = !loss_->cut.empty() && !loss_->says_how;
  if (is_cut && peer(number).silence) find_fate(number, peer(number));
  const bool is_near = number >= 0 && roster_.process_of(number);
  const bool others_know = number >= 0 && !is_near && roster_.has_neighbour(number);
  const auto pause = loss_->says_how ? words_take : others_know ? neighbours_take : far_words_take;
  if (Clock::now() - loss_->at <= pause) return;
  told_of_loss_ = shared_->has_lost = true;
  if (is_cut) look_why_cut();
  if (const auto lost = lost_ && !loss_->says_how ? lost_() : std::nullopt)
    loss_->why = lost->words;  // this knows more than the end of a connection
  throw Error(Code::peer_failed, loss_->why, loss_->mend);
}

// Returns the time without an answer on all connections; zero if none is awaited, or one has just come.
std::chrono::milliseconds TcpTransport::unanswered_for(const TcpPeer& one) const {
  bool is_awaited = false;
  auto last = std::chrono::milliseconds::max();
  const auto ask = [&](const Descriptor& socket) {
    const auto answers = answers_of(socket);
    is_awaited = is_awaited || (answers && answers->are_awaited);
    if (answers) last = std::min(last, answers->last);
  };
  if (one.words.is_open()) ask(one.words.socket());
  for (const LaneStream& lane : one.lanes) {
    if (lane.is_open()) ask(lane.socket());
  }
  return is_awaited ? last : std::chrono::milliseconds(0);
}

// If data is under way, the kernel does not probe the host, and would resend the data for a quarter of an hour.
void TcpTransport::look_at_hosts() {
  constexpr std::chrono::milliseconds between_looks{500};
  constexpr std::chrono::milliseconds worth_a_word{2000};
  const auto now = Clock::now();
  if (now - hosts_looked_at_ < between_looks) return;
  hosts_looked_at_ = now;
  for (const auto& [number, one] : peers_) {
    if (one->has_left || one->fate != Fate::here) continue;
    const auto unanswered = unanswered_for(*one);
    if (unanswered > shared_->silence) {
      lose(number, silence_of_host(ETIMEDOUT), ETIMEDOUT);
      continue;
    }
    say_silence(number, *one, unanswered > std::min(worth_a_word, shared_->silence / 2));
  }
}

// Logs once for all ranks on one host.
void TcpTransport::say_silence(int number, TcpPeer& one, bool is_silent) {
  if (std::exchange(one.is_silent, is_silent) == is_silent) return;
  const ListeningAddress& place = places_[static_cast<std::size_t>(number)];
  const bool is_known = std::ranges::any_of(peers_, [&](const auto& each) {
    const auto& [other, its] = each;
    return other != number && its->is_silent && places_[static_cast<std::size_t>(other)].is_on_host_of(place);
  });
  if (is_known) return;
  if (!is_silent) return shared_->log.info(text("the host of ", name_of(number), " answers again"));
  shared_->log.warn(text("nothing has come from the host of ", name_of(number), " for a while; it is waited for, ",
                         format_duration(std::chrono::duration_cast<Duration>(shared_->silence)),
                         " at most -> look whether that host is there, and at the link to it"));
}

// No more data comes over a connection that has ended. If its rank has left, that is the error. A live rank has 5 s to
// say why.
void TcpTransport::look_for_breaks() {
  constexpr std::chrono::seconds explained_in{5};
  constexpr std::chrono::seconds looked_away{1};
  if (!has_breaks_ || is_given_up_ || loss_) return;
  const auto now = Clock::now();
  const auto since = now - std::exchange(breaks_looked_at_, now);
  for (std::size_t lane = 0; lane < rounds_.size(); ++lane) {
    const LaneRound& round = rounds_[lane];
    if (round.left.none() || round.across) continue;
    for (const int each : round.peers) {
      TcpPeer& one = peer(each);
      auto& broke = one.breaks[lane];
      if (broke && since > looked_away) broke->at = std::min(now, broke->at + since);
      const bool is_needed = one.lanes[lane].wants() || one.lanes[lane].is_sending();
      if (!broke || !is_needed || broke->at > now - explained_in) continue;
      const bool is_known_to_live = one.links[words_channel] == ConnectionState::open;
      if (!one.has_left && !is_known_to_live && broke->at > now - explained_in - shared_->silence)
        continue;  // its host may be gone
      throw Error(
          one.has_left ? Code::peer_failed : Code::system,
          text("the connection to ", name_of(each), one.has_left ? " is over" : " broke", ": ",
               broke->error == 0 ? "it was closed on the way" : std::strerror(broke->error), "; that rank ",
               one.has_left ? "has left, and what is waited for from it has not come" : "lives, and has not said why"),
          "look at what that rank says itself, and at what is between the two hosts: a firewall that forgets "
          "connections, a link, a switch");
    }
  }
}

// Connects again to all ranks that could not be reached.
void TcpTransport::call_again_on_the_way() {
  constexpr std::chrono::milliseconds between_calls{100};
  if (!has_unreached_ || Clock::now() - called_on_the_way_at_ < between_calls) return;
  called_on_the_way_at_ = Clock::now();
  has_unreached_ = false;
  for (const auto& [number, one] : peers_) {
    if (!is_host_there(number, *one)) continue;
    for (std::uint32_t channel = 0; channel < channel_count; ++channel) {
      if (std::exchange(one->is_unreached[channel], false)) reach(number, channel);
    }
  }
}

// Connects again for everything that lacked a descriptor.
void TcpTransport::call_again_for_room() {
  constexpr std::chrono::milliseconds between_calls{5};
  call_again_on_the_way();
  if (!no_room_) return;
  const auto now = Clock::now();
  if (now - called_again_at_ < between_calls) return;
  called_again_at_ = now;
  bool is_anybody_called = false;
  const auto again = [&](int number, std::uint32_t channel, bool is_wanted) {
    if (!is_wanted || peer(number).links[channel] != ConnectionState::none) return;
    is_anybody_called = true;
    reach(number, channel);
  };
  for (const auto& [number, one] : peers_) {
    for (std::uint32_t lane = 0; lane < lane_count; ++lane) again(number, lane, one->lanes[lane].is_sending());
    again(number, words_channel, one->words.has_unsent());
  }
  if (!is_anybody_called) no_room_.reset();
}

// Throws if this process lacks descriptors, since a round that needs a connection would wait forever.
void TcpTransport::look_for_room() {
  constexpr std::string_view mend = "raise the limit of open files (ulimit -Hn), or open fewer in this process";
  constexpr std::chrono::seconds none_for{1};
  call_again_for_room();
  const bool cannot_call = no_room_ && Clock::now() - no_room_->since > none_for;
  const int shut = acceptor_.why_shut();
  if ((!cannot_call && shut == 0) || is_given_up_) return;
  for (std::size_t lane = 0; lane < rounds_.size(); ++lane) {
    const LaneRound& round = rounds_[lane];
    const bool lacks_one = !round.left.none() && std::ranges::any_of(round.peers, [&](int each) {
      return peer(each).links[round.across ? words_channel : lane] != ConnectionState::open;
    });
    if (!lacks_one) continue;
    if (cannot_call) throw system_error("making a connection to another member", no_room_->error, mend);
    throw system_error("letting in other members, who call", shut, mend);
  }
}

}  // namespace lockstep::tcp
