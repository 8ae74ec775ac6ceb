// SPDX-License-Identifier: Apache-2.0
// The transport over sockets, as its files see it: tcp_transport.cpp has the rounds and words, tcp_doors.cpp how
// connections come about and end.
#pragma once

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/tcp/reception.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/tcp/word_stream.hpp"

namespace lockstep {

struct Tcp::Shared {
  explicit Shared(const TcpOptions& options)
      : silence(std::chrono::duration_cast<std::chrono::milliseconds>(options.silence)),
        label(options.label),
        log(options.log),
        reception(options.address, options.listens_everywhere, options.key) {}
  std::chrono::milliseconds silence;
  std::string label;
  Log log;
  tcp::Reception reception;
  std::atomic<bool> has_lost = false;
};

namespace tcp {

inline constexpr int lane_count = 4;
inline constexpr std::uint32_t words_channel = lane_count;
inline constexpr std::uint32_t channel_count = lane_count + 1;
inline constexpr std::size_t window_bytes = 48U << 10U;  // a message that is smaller is read together with its head

// To a host, for now.
inline bool is_no_way(int error) {
  return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<Tcp::Shared> shared, Exchange& exchange, LookForLost lost);
  // Of members that know where the others are.
  TcpTransport(std::shared_ptr<Tcp::Shared> shared, const Desk& me, std::vector<Place> places, Roster roster);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return static_cast<int>(me_.rank); }
  int size() const override { return static_cast<int>(places_.size()); }
  int lanes() const override { return lane_count; }
  std::uint32_t marks_across() const override { return 1U << 31U; }

  void post(Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void tell(int peer, Bytes bytes) override;
  bool is_said(int peer) override;
  bool sleeps_beside() const override { return true; }
  void tell_all(const Bytes& bytes) override;
  std::optional<Heard> hear() override;
  void sleep(std::int64_t nanoseconds) override;
  void leave(const Bytes& last_words) override;
  Fate fate(int peer) override;
  bool can_regroup() const override { return true; }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override;

 private:
  using Clock = std::chrono::steady_clock;
  // awaited: the other side calls, as it has said; over: nothing goes there any more.
  enum class Link : std::uint8_t { none, calling, awaited, open, over };
  // The end of a connection for data.
  struct Break {
    int error;
    Clock::time_point at;
  };
  // Nobody says any more on a connection, so that its process has ended, if something on the way has not ended it.
  struct Silence {
    Clock::time_point since;
    Clock::time_point looked_at;
    Descriptor knocking;  // at its port
  };
  // One with whom there is something.
  struct Peer {
    std::array<Link, channel_count> links{};
    std::array<LaneStream, lane_count> lanes;
    WordStream words;
    bool has_left = false;
    bool is_silent = false;                          // its host is, but not so long that it would be gone
    int calls_again = 2;                             // where it hangs up without a word
    std::array<bool, channel_count> is_unreached{};  // for want of a way to its host, which may come back
    std::optional<Clock::time_point> unreached_since;
    Fate fate = Fate::here;
    std::optional<Silence> silence;  // while its fate is not known
    std::array<std::optional<Break>, lane_count> breaks;
  };
  // What a lane has under way.
  struct Round {
    Left left;
    std::vector<int> peers;
    std::uint64_t mark = 0;
    bool across = false;
    Clock::time_point begun;
    bool is_looked_after = false;
  };
  // What the kernel tells of a descriptor is about.
  struct Door {
    enum class Kind : std::uint8_t { reception, callers, handshake, words, lane, process };
    Kind kind = Kind::reception;
    int peer = -1;
    std::uint32_t channel = 0;
  };
  // To oneself.
  struct Own {
    std::uint64_t channel;
    std::uint64_t mark;
    const std::byte* from;
    std::byte* into;
    std::size_t bytes;
    Left* left;
  };
  // For a connection that is to be made.
  struct NoRoom {
    int error;
    Clock::time_point since;
  };
  struct Loss {
    int number;  // -1: no member
    std::string why;
    bool says_how;
    Clock::time_point at;
  };

  Peer& peer(int number);
  void meet(Exchange& exchange);
  static Descriptor place_to_wait();
  void open_doors();
  void post_to(const Outgoing& each, Stamp stamp, Round& round);
  void post_from(const Incoming& each, Stamp stamp, Round& round);
  void post_own(const Own& own);
  void move(int number, int lane);
  void look_after(Round& round);
  void look_what_to_wait_for(std::vector<pollfd>& awaited);
  std::optional<Heard> next_heard();
  void look_for_lost();
  void say_loss();
  void look_at_hosts();
  std::chrono::milliseconds unanswered_for(const Peer& one) const;
  void say_silence(int number, Peer& one, bool is_silent);
  void look_for_breaks();
  void look_for_room();
  void call_again_for_room();
  void call_again_on_the_way();

  void watch(const Descriptor& socket, const Door& door, std::uint32_t events);
  void change(const Descriptor& socket, std::uint32_t events);
  void unwatch(const Descriptor& socket) { unwatch(socket.get()); }
  void unwatch(int socket);
  void watch_process(int number);
  void end_process(int descriptor);
  void look_at_doors();
  void come_to(int socket, const Door& door, std::uint32_t events);
  void reach(int number, std::uint32_t channel);
  void call(int number, std::uint32_t channel, bool near);
  void fail_to_reach(int number, std::uint32_t channel, int error);
  void let_in();
  bool takes(int number, std::uint32_t channel);
  void move_handshake(int socket);
  void open(int number, std::uint32_t channel, Descriptor socket);
  void move_words(int number);
  WordStream::Outcome hear_words(int number);
  void flush_words(int number);
  void close_lane(int number, int lane, int error);
  void close_words(int number, int error);
  void lose(int number, std::string_view why, int error);
  void find_fate(int number, Peer& one);
  void see_off(int number, Peer& one, Reception::LastWords& last);
  bool is_under_way() const;
  void move_beside();
  std::string name_of(int number) const { return roster_.name_of(number); }
  std::string silence_of_host(int error) const;

  std::shared_ptr<Tcp::Shared> shared_;
  Reception& reception_;
  Desk me_;
  LookForLost lost_;
  std::vector<Place> places_;
  Roster roster_;
  std::shared_ptr<Reception::Callers> callers_;
  Descriptor doors_;        // epoll
  std::map<int, Door> at_;  // by descriptor
  struct Calling {
    Handshake shake;
    bool near;
  };
  std::map<int, Calling> calling_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::deque<Round> rounds_{lane_count};
  std::vector<Own> own_;
  std::deque<Heard> heard_;
  std::vector<Bytes> words_;  // just heard
  std::vector<std::byte> window_;
  std::string wrong_;
  bool is_given_up_ = false;
  Bytes last_words_;
  unsigned turns_ = 0;
  bool has_breaks_ = false;
  bool has_unreached_ = false;
  std::optional<NoRoom> no_room_;
  Clock::time_point hosts_looked_at_;
  Clock::time_point breaks_looked_at_;
  Clock::time_point called_again_at_;
  Clock::time_point called_on_the_way_at_;
  std::optional<Loss> loss_;
  bool told_of_loss_ = false;
  std::mutex mutex_;  // who moves this may be another than who is inside
  Mover mover_{[this] { move_beside(); }};
};

}  // namespace tcp
}  // namespace lockstep
