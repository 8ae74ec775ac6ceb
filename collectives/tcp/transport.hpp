// SPDX-License-Identifier: Apache-2.0
// Declares the class behind Tcp::transport() for its .cpp files. tcp_transport.cpp has rounds and control messages,
// tcp_doors.cpp connections. tcp_fates.cpp finds lost ranks, and tcp_looks.cpp has checks while waiting.
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

#include "collectives/tcp/acceptor.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/tcp/word_stream.hpp"

namespace lockstep {

// Holds the state that all transports of a process share.
struct Tcp::Shared {
  explicit Shared(const TcpOptions& options)
      : silence(std::chrono::duration_cast<std::chrono::milliseconds>(options.silence)),
        label(options.label),
        log(options.log),
        acceptor(options.address, options.listens_everywhere, options.key) {}
  std::chrono::milliseconds silence;
  std::string label;
  Log log;
  tcp::Acceptor acceptor;
  std::atomic<bool> has_lost = false;
};

namespace tcp {

// Numbers the connections between two ranks: one per lane, then one for control messages.
inline constexpr int lane_count = 4;
inline constexpr std::uint32_t words_channel = lane_count;
inline constexpr std::uint32_t channel_count = lane_count + 1;
// Sets the size of a read in bytes; a smaller message is read together with its header.
inline constexpr std::size_t window_bytes = 48U << 10U;

// True if there is no route to the host at the moment.
inline bool is_no_way(int error) {
  return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN;
}

// Implements Transport over sockets. A mutex protects it, because another thread that waits may move its data.
class TcpTransport final : public Transport {
 public:
  // Learns the places of the others by the exchange; all of its members do so together.
  TcpTransport(std::shared_ptr<Tcp::Shared> shared, Exchange& exchange, LostMemberLookup lost);
  // Takes the places of the others from an earlier transport, for regroup().
  TcpTransport(std::shared_ptr<Tcp::Shared> shared, const MemberId& me, std::vector<ListeningAddress> places,
               Roster roster);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return static_cast<int>(me_.rank); }
  int size() const override { return static_cast<int>(places_.size()); }
  int lanes() const override { return lane_count; }
  std::uint32_t exchange_tags() const override { return 1U << 31U; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void tell(int peer, Bytes bytes) override;
  bool is_said(int peer) override;
  bool sleeps_beside() const override { return true; }
  void tell_all(const Bytes& bytes) override;
  std::optional<SmallMessage> hear() override;
  void sleep(std::int64_t nanoseconds) override;
  void leave(const Bytes& last_words) override;
  Fate fate(int peer) override;
  bool can_regroup() const override { return true; }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Says how far a connection is. awaited: the other side has said that it calls. over: nothing goes there any more.
  enum class ConnectionState : std::uint8_t { none, calling, awaited, open, over };
  // Remembers the end of a connection for data.
  struct BrokenConnection {
    int error;
    Clock::time_point at;
  };
  // Checks a rank after its control connection has ended. Its process has ended, too, unless something between the
  // hosts cut the connection.
  struct SilenceCheck {
    Clock::time_point since;
    Clock::time_point looked_at;
    Descriptor knocking;  // a connection attempt to its port
  };
  // Asks whether a host is there, after a connection to it was not made in time.
  struct HostQuestion {
    Descriptor knocking;
    Clock::time_point since;
  };
  static constexpr int most_calls_after_reset = 100;  // ten a second
  // Holds everything about one other rank.
  struct TcpPeer {
    std::array<ConnectionState, channel_count> links{};
    std::array<LaneStream, lane_count> lanes;
    WordStream words;
    bool has_left = false;
    bool is_silent = false;  // its host is silent, but not for too long yet
    int calls_again = 2;     // if it closes the connection without a message
    int calls_after_reset = most_calls_after_reset;
    // Marks channels that had no route to the host; the route may come back.
    std::array<bool, channel_count> is_unreached{};
    std::optional<Clock::time_point> unreached_since;
    std::optional<HostQuestion> question;
    Fate fate = Fate::here;
    std::optional<SilenceCheck> silence;  // set while its fate is unknown
    std::array<std::optional<BrokenConnection>, lane_count> breaks;
  };
  // Describes the round that a lane has under way.
  struct LaneRound {
    PendingCounts left;
    std::vector<int> peers;
    std::uint64_t call_tag = 0;
    bool across = false;
    Clock::time_point begun;
    bool is_looked_after = false;
  };
  // Names the kind of descriptor that epoll reports.
  enum class EpollTarget : std::uint8_t { acceptor, incoming, handshake, words, lane, process };
  struct EpollEntry {
    EpollTarget kind = EpollTarget::acceptor;
    int peer = -1;
    std::uint32_t channel = 0;
  };
  // Describes half of a message of a rank to itself; a send has no `into`.
  struct SelfMessage {
    std::uint64_t channel;
    std::uint64_t call_tag;
    const std::byte* from;
    std::byte* into;
    std::size_t bytes;
    PendingCounts* left;
  };
  // Remembers that descriptors or memory lack for a new connection.
  struct ConnectionShortage {
    int error;
    Clock::time_point since;
  };
  // Describes the loss of a rank until it is reported.
  struct LostPeer {
    int number;  // -1: not a member
    std::string why;
    bool says_how;
    Clock::time_point at;
    std::string cut = {};  // how its connection ended, if nothing else is known
    std::string_view mend = "look at what that process says itself";
  };

  TcpPeer& peer(int number);
  void meet(Exchange& exchange);
  static Descriptor place_to_wait();
  void open_doors();
  void post_to(const SendDescriptor& each, RoundTag round_tag, LaneRound& round);
  void post_from(const ReceiveDescriptor& each, RoundTag round_tag, LaneRound& round);
  void post_own(const SelfMessage& own);
  void move(int number, int lane);
  void look_after(LaneRound& round);
  std::vector<pollfd> what_to_wait_for();
  std::optional<SmallMessage> next_heard();
  void look_for_lost();
  void say_loss();
  void look_at_hosts();
  std::chrono::milliseconds unanswered_for(const TcpPeer& one) const;
  void say_silence(int number, TcpPeer& one, bool is_silent);
  void look_for_breaks();
  void look_for_room();
  void call_again_for_room();
  void call_again_on_the_way();

  void watch(const Descriptor& socket, const EpollEntry& door, std::uint32_t events);
  void change(const Descriptor& socket, std::uint32_t events);
  void unwatch(const Descriptor& socket) { unwatch(socket.get()); }
  void unwatch(int socket);
  void watch_process(int number);
  void end_process(int descriptor);
  void look_at_doors();
  void come_to(int socket, const EpollEntry& door, std::uint32_t events);
  void reach(int number, std::uint32_t channel);
  void call(int number, std::uint32_t channel, bool near);
  void fail_to_reach(int number, std::uint32_t channel, int error);
  bool asks_host(int number);
  bool is_host_there(int number, TcpPeer& one);
  void let_in();
  bool takes(int number, std::uint32_t channel);
  void move_handshake(int socket);
  void open(int number, std::uint32_t channel, Descriptor socket);
  void move_words(int number);
  WordStream::WordProgress hear_words(int number);
  void flush_words(int number);
  void close_lane(int number, int lane, int error);
  void close_words(int number, int error);
  void lose(int number, std::string_view why, int error, bool is_cut = false);
  void look_why_cut();
  void find_fate(int number, TcpPeer& one);
  void see_off(int number, TcpPeer& one, Acceptor::LastWords& last);
  bool is_under_way() const;
  void move_beside();
  std::string name_of(int number) const { return roster_.name_of(number); }
  std::string silence_of_host(int error) const;

  std::shared_ptr<Tcp::Shared> shared_;
  Acceptor& acceptor_;
  MemberId me_;
  LostMemberLookup lost_;
  std::vector<ListeningAddress> places_;
  Roster roster_;
  std::shared_ptr<Acceptor::IncomingConnections> incoming_;
  Descriptor doors_;              // an epoll
  std::map<int, EpollEntry> at_;  // by descriptor
  struct OutgoingConnection {
    Handshake shake;
    bool near;
  };
  std::map<int, OutgoingConnection> calling_;
  std::map<int, std::unique_ptr<TcpPeer>> peers_;
  std::deque<LaneRound> rounds_{lane_count};
  std::vector<SelfMessage> own_;
  std::deque<SmallMessage> heard_;
  std::vector<Bytes> words_;  // control messages just received
  std::vector<std::byte> window_;
  std::vector<pollfd> spare_;  // the memory of the last sleep, for the next one
  std::string wrong_;
  std::optional<BadMemory> bad_;
  bool is_given_up_ = false;
  Bytes last_words_;
  unsigned turns_ = 0;
  bool has_breaks_ = false;
  bool has_unreached_ = false;
  std::optional<ConnectionShortage> no_room_;
  Clock::time_point hosts_looked_at_;
  Clock::time_point breaks_looked_at_;
  Clock::time_point called_again_at_;
  Clock::time_point called_on_the_way_at_;
  std::optional<LostPeer> loss_;
  bool told_of_loss_ = false;
  std::mutex mutex_;  // the thread that moves this may be another than the caller
  ProgressHook hook_{[this] { move_beside(); }};
};

}  // namespace tcp
}  // namespace lockstep
