// SPDX-License-Identifier: Apache-2.0
// Tries failed connections again every 100 ms, and those that lacked a descriptor every 5 ms.
#include "collectives/tcp/connection_retries.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::tcp {

// Retries after a reset, because a busy process may have reset the connection to make room. A process that computes may
// accept nobody, so a timeout leads to a question to its host.
bool ConnectionRetries::allows_retry(int peer, std::uint32_t channel, int error) {
  FailedAttempts& attempts = peers_[peer];
  const auto now = Clock::now();
  if (!attempts.unreached_since) attempts.unreached_since = now;
  const bool is_reset = error == ECONNRESET || error == EPIPE;
  const bool is_retried = (has_no_route(error) && now - *attempts.unreached_since < silence_) ||
                          (is_reset && attempts.retries_after_reset-- > 0) ||
                          (error == ETIMEDOUT && asks_host(peer, attempts));
  if (is_retried) attempts.has_failed[channel] = has_failed_ = true;
  return is_retried;
}

void ConnectionRetries::add_shortage(int peer, std::uint32_t channel, int error) {
  peers_[peer].lacks_descriptor[channel] = has_lacking_ = true;
  if (!shortage_) shortage_ = ConnectionShortage{error, Clock::now()};
}

void ConnectionRetries::set_connected(int peer, std::uint32_t channel) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second.unreached_since.reset();
  found->second.retries_after_reset = max_retries_after_reset;
  found->second.lacks_descriptor[channel] = false;
}

void ConnectionRetries::drop_data_connections() {
  for (auto& [peer, attempts] : peers_)
    for (std::size_t lane = 0; lane < lane_count; ++lane) attempts.lacks_descriptor[lane] = false;
}

// Connects to a port without a listener: a host that is there refuses, regardless of its processes.
bool ConnectionRetries::asks_host(int peer, FailedAttempts& attempts) {
  constexpr std::uint16_t of_discard = 9;
  if (attempts.question) return true;
  ListeningAddress host = members_.address_of(peer);
  host.port = of_discard;
  int error = 0;
  auto socket = connect(host, false, error);
  if (socket) attempts.question = HostQuestion{std::move(*socket), Clock::now()};
  if (error == ECONNREFUSED) attempts.unreached_since.reset();
  return socket || error == ECONNREFUSED || is_exhausted(error);
}

ConnectionRetries::HostAnswer ConnectionRetries::check_host(FailedAttempts& attempts) {
  constexpr std::chrono::milliseconds answer_takes{500};
  if (!attempts.question) return HostAnswer::there;
  const Descriptor& probe = attempts.question->probe;
  const int error = error_of(probe);
  const bool answers = error == ECONNREFUSED || is_connected(probe);
  if (!answers && error == 0 && Clock::now() - attempts.question->since < answer_takes) return HostAnswer::none_yet;
  attempts.question.reset();
  attempts.unreached_since.reset();
  return answers ? HostAnswer::there : HostAnswer::gone;
}

std::vector<ConnectionRetries::DueRetry> ConnectionRetries::take_due() {
  constexpr std::chrono::milliseconds between_retries{100};
  constexpr std::chrono::milliseconds between_lacking{5};
  std::vector<DueRetry> due;
  if (!has_failed_ && !has_lacking_) return due;
  const auto now = Clock::now();
  if (has_failed_ && now - failed_retried_at_ >= between_retries) {
    failed_retried_at_ = now;
    has_failed_ = false;
    for (auto& [peer, attempts] : peers_) {
      const HostAnswer answer = check_host(attempts);
      if (answer == HostAnswer::none_yet)
        has_failed_ = true;
      else
        due.push_back({peer, std::exchange(attempts.has_failed, {}), answer == HostAnswer::gone});
    }
  }
  if (has_lacking_ && now - lacking_retried_at_ >= between_lacking) {
    lacking_retried_at_ = now;
    has_lacking_ = false;
    for (auto& [peer, attempts] : peers_) {
      if (std::ranges::none_of(attempts.lacks_descriptor, std::identity{})) continue;
      has_lacking_ = true;
      due.push_back({peer, std::exchange(attempts.lacks_descriptor, {}), false});
    }
    if (!has_lacking_) shortage_.reset();
  }
  return due;
}

int ConnectionRetries::lasting_shortage() const {
  constexpr std::chrono::seconds lasting{1};
  return shortage_ && Clock::now() - shortage_->since > lasting ? shortage_->error : 0;
}

}  // namespace lockstep::tcp
