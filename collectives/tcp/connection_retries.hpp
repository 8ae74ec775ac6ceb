// SPDX-License-Identifier: Apache-2.0
// Decides which connections that could not be made are tried again, and when.
//
// PeerConnections owns it. It only decides; PeerConnections starts the connections.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "collectives/tcp/tcp_members.hpp"
#include "collectives/tcp/tcp_shared.hpp"

namespace lockstep::tcp {

// Remembers failed attempts. Connections are retried while the route to a host is gone, after a reset, after a timeout
// if the host answers, and while this process lacks descriptors.
class ConnectionRetries {
 public:
  // `members` must stay. A host may be silent for `silence`.
  ConnectionRetries(const TcpMembers& members, std::chrono::milliseconds silence)
      : members_(members), silence_(silence) {}

  // Records an attempt that failed with this errno. Returns true if it will be repeated.
  bool allows_retry(int peer, std::uint32_t channel, int error);
  // Records an attempt that lacked a descriptor; it will be repeated.
  void add_shortage(int peer, std::uint32_t channel, int error);
  // Records that a descriptor could be had again.
  void end_shortage() { shortage_.reset(); }
  // Records that the connection stands.
  void set_connected(int peer, std::uint32_t channel);
  // Drops the data connections that lacked a descriptor.
  void drop_data_connections();

  // Names the channels of a peer that are to be tried again, or given up because its host does not answer.
  struct DueRetry {
    int peer;
    std::array<bool, channel_count> channels{};
    bool is_given_up = false;
  };
  // Returns the connections that are due, and forgets them. It allocates only if there are any.
  std::vector<DueRetry> take_due();
  // Returns the errno of a lack of descriptors that has lasted for more than a second, or 0.
  int lasting_shortage() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int max_retries_after_reset = 100;  // ten a second
  // Asks whether a host is there, after a connection to it was not made in time.
  struct HostQuestion {
    Descriptor probe;
    Clock::time_point since;
  };
  struct FailedAttempts {
    std::array<bool, channel_count> has_failed{};  // the peer may be reached later
    std::array<bool, channel_count> lacks_descriptor{};
    std::optional<Clock::time_point> unreached_since;
    int retries_after_reset = max_retries_after_reset;
    std::optional<HostQuestion> question;
  };
  // Remembers that descriptors or memory lack for a new connection.
  struct ConnectionShortage {
    int error;
    Clock::time_point since;
  };
  enum class HostAnswer : std::uint8_t { none_yet, there, gone };

  bool asks_host(int peer, FailedAttempts& attempts);
  HostAnswer check_host(FailedAttempts& attempts);

  const TcpMembers& members_;
  std::chrono::milliseconds silence_;
  std::map<int, FailedAttempts> peers_;
  bool has_failed_ = false;
  Clock::time_point failed_retried_at_;
  bool has_lacking_ = false;
  Clock::time_point lacking_retried_at_;
  std::optional<ConnectionShortage> shortage_;
};

}  // namespace lockstep::tcp
