// SPDX-License-Identifier: Apache-2.0
// An exchange over MPI's point-to-point messages: up a binomial tree and down again, 2 log n steps.
// When somebody does not come, those who wait find out who, exactly, and all say the same.
// Several members may be threads of one process; then what two of them send each other has a channel of its own.
#pragma once

#include "topology/exchange.hpp"
#include "topology/machine/mpi/wire.hpp"

namespace lockstep {

// Tags of its own on the wire, and the how-manieth to have them: a channel for each pair of so many threads, from the
// first on.
struct ChannelBlock {
  int channel = 0;
  std::uint32_t generation = 0;
  int threads = 1;

  int channels() const { return threads * threads; }
};

// Where a member is: the process with this rank on the wire, and which of its threads.
struct ThreadAddress {
  int process = 0;
  int thread = 0;
  bool operator==(const ThreadAddress&) const = default;
};

class MpiExchange final : public Exchange {
 public:
  // All processes of the wire, one member each.
  MpiExchange(const std::shared_ptr<Wire>& wire, Patience patience, Log log);
  // `members` are in the order of this exchange; this thread is the one of that rank.
  MpiExchange(std::shared_ptr<Wire> wire, ChannelBlock block, std::vector<ThreadAddress> members, int rank,
              Patience patience, Log log);
  ~MpiExchange() override;

  // New exchanges, one for each of so many threads of this process, and as many as they say of the others. All members
  // of this one, which are one for each process, call it.
  struct ThreadExchanges {
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<int> numbers;  // of threads, by process
    bool all_able = true;      // by their own word
  };
  ThreadExchanges of_threads(int mine, bool is_able);

  // For a transport of data over the same channels.
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
  // A message of any member's, with its rank in this exchange as the source.
  std::optional<Wire::ReceivedMessage> try_receive_any(int kind);
  bool flushed();
  std::uint32_t generation() const { return static_cast<std::uint32_t>(sequence_ >> 32U); }
  static constexpr int word_kind = 5;  // its small messages; ours are below
  // Any member may have messages of ours that it has not received, or may still send to us.
  void mark_failed() { failed_ = true; }
  // A message of data goes to this member, which may end without receiving it.
  void sends_to(int member) { sent_to_[static_cast<std::size_t>(member)] = 1; }
  // A send to the member was left to MPI.
  void gives_up(int member, std::size_t bytes);

 private:
  class Call;
  enum MpiMessageKind : std::uint8_t { up, down, question, answer, verdict };

  std::vector<Bytes> gather_all(std::string_view what, std::span<const std::byte> mine, Patience patience) override;
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
  bool chooses_for_others() const override { return block_.threads > 1; }
  ChannelBlock free_block(const std::vector<Bytes>& used, int threads) const;

  void send(int to, MpiMessageKind kind, Bytes bytes);
  void send_verdict(int to, Code code, std::string_view why);
  std::optional<Wire::ReceivedMessage> try_receive(int from,
                                                   MpiMessageKind kind);  // the source is a rank of this exchange

  const ThreadAddress& me() const { return members_[static_cast<std::size_t>(rank())]; }
  int channel(int from_thread, int to_thread) const {
    return block_.channel + from_thread * block_.threads + to_thread;
  }

  std::shared_ptr<Wire> wire_;
  ChannelBlock block_;
  std::vector<ThreadAddress> members_;
  std::uint64_t sequence_;  // of the call; the upper half is the generation
  bool failed_ = false;
  std::vector<char> sent_to_;             // by member
  std::map<int, std::size_t> given_up_;   // the shortest send that was given up, by member
  std::map<int, std::size_t> inherited_;  // members that may have unreceived messages of an earlier exchange, likewise
};

}  // namespace lockstep
