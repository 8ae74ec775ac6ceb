// SPDX-License-Identifier: Apache-2.0
// An exchange over MPI's point-to-point messages: up a binomial tree and down again, in 2 log n steps. If a member does
// not come, the waiting ones find out which, and all report the same. Members may be threads of one process; each pair
// of threads then has a channel of its own.
#pragma once

#include "topology/base/error_report.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/mpi/wire.hpp"

namespace lockstep {

// Holds a run of channels on the wire, one for each ordered pair of threads. `generation` counts the exchanges that
// have had channels, so that late messages are recognised.
struct ChannelBlock {
  int channel = 0;
  std::uint32_t generation = 0;
  int threads = 1;

  int channels() const { return threads * threads; }
};

// Addresses a member: the rank of its process on the wire, and the number of its thread there.
struct ThreadAddress {
  int process = 0;
  int thread = 0;
  bool operator==(const ThreadAddress&) const = default;
};

// Connects members over a wire, on channels of their own. One thread drives it.
class MpiExchange final : public Exchange {
 public:
  // Connects all processes of the wire, one member each.
  MpiExchange(const std::shared_ptr<Wire>& wire, WaitLimits wait_limits, Log log);
  // `members` are in the order of this exchange. This thread is the one with that rank.
  MpiExchange(std::shared_ptr<Wire> wire, ChannelBlock block, std::vector<ThreadAddress> members, int rank,
              WaitLimits wait_limits, Log log);
  ~MpiExchange() override;

  // Makes new exchanges, one for each of `mine` threads of this process. The other processes give numbers of their own.
  // All members of this exchange call it, and they are one for each process.
  struct ThreadExchanges {
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<int> numbers;  // numbers of threads, by process
    bool all_able = true;      // true if all processes called with `is_able`
  };
  ThreadExchanges of_threads(int mine, bool is_able);

  // These serve a transport of data over the same channels.
  const std::shared_ptr<Wire>& wire() const { return wire_; }
  const ChannelBlock& channel_block() const { return block_; }
  const std::vector<ThreadAddress>& members() const { return members_; }
  int process_of(int member) const { return members_.at(static_cast<std::size_t>(member)).process; }
  int channel_to(int member) const {
    return channel(me().thread, members_.at(static_cast<std::size_t>(member)).thread);
  }
  int channel_from(int member) const {
    return channel(members_.at(static_cast<std::size_t>(member)).thread, me().thread);
  }
  // Returns a message of any member, with its rank in this exchange as the source; nothing if none is here.
  std::optional<ReceivedMessage> try_receive_any(int kind);
  // True if MPI has sent all set-up messages of this thread.
  bool flushed();
  // Tells this exchange from earlier ones on the same channels.
  std::uint32_t generation() const { return static_cast<std::uint32_t>(sequence_ >> 32U); }
  static constexpr int word_kind = 5;  // the kind of the transport's small messages; ours are below
  // Notes that any member may hold unreceived messages of ours, or may still send to us. The destructor then waits for
  // none of them.
  void mark_failed() { failed_ = true; }
  // Notes that a message of data goes to this member, which may end without receiving it.
  void sends_to(int member) { sent_to_[static_cast<std::size_t>(member)] = 1; }
  // Notes that a send of so many bytes to the member was left to MPI.
  void gives_up(int member, std::size_t bytes);

 private:
  class Call;
  enum MpiMessageKind : std::uint8_t { up, down, question, answer, verdict };

  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine,
                                WaitLimits wait_limits) override;
  void tell_failure(std::string_view why) override;
  std::unique_ptr<Exchange> make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) override;
  Bytes channels_in_use() override;
  Bytes opening() override;
  void open(const std::vector<Bytes>& openings) override;
  void clear_channels(const std::vector<Bytes>& openings);
  void open_together(const std::vector<std::unique_ptr<MpiExchange>>& made);
  void note_unreceived();
  std::unique_lock<std::mutex> try_choosing() override;
  std::uint64_t seed() const override;
  ChannelBlock free_block(const std::vector<Bytes>& used, int threads) const;

  void send(int to, MpiMessageKind kind, Bytes bytes);
  void send_verdict(int to, const ErrorReport& report);
  // Returns a message with its rank in this exchange as the source. `from` may be any (-1).
  std::optional<ReceivedMessage> try_receive(int from, MpiMessageKind kind);

  const ThreadAddress& me() const { return members_[static_cast<std::size_t>(rank())]; }
  int channel(int from_thread, int to_thread) const {
    return block_.channel + from_thread * block_.threads + to_thread;
  }

  std::shared_ptr<Wire> wire_;
  ChannelBlock block_;
  std::vector<ThreadAddress> members_;
  std::uint64_t sequence_;  // the number of the call; the upper half is the generation
  bool failed_ = false;
  std::vector<char> sent_to_;             // true (1) if data went to it, by member
  std::map<int, std::size_t> given_up_;   // bytes of the shortest send that was given up, by member
  std::map<int, std::size_t> inherited_;  // the same of an earlier exchange that left messages unreceived
};

}  // namespace lockstep
