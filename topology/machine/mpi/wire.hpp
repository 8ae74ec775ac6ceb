// SPDX-License-Identifier: Apache-2.0
// Our own lane through MPI: one private communicator, on which nothing ever blocks. Channels (ranges of tags) keep the
// exchanges that share it apart, and their data apart from their set-up messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/machine/mpi/tag_layout.hpp"
#include "topology/machine/session.hpp"
#include "topology/members.hpp"

namespace lockstep {

// Sends and receives set-up messages, guards MPI against several threads, and frees its communicator when no message
// can come late.
class Wire {
 public:
  // Takes the communicator, which must be private to us, and frees it at the end. Messages under way leave it to MPI.
  Wire(MPI_Comm owned, ThreadLevel level);
  ~Wire();
  // Makes a wire that ends without waiting for other ranks. When its last owner is gone, this rank tells the others how
  // many messages it has sent (a nonblocking reduction). free_ended() frees the communicator later.
  static std::shared_ptr<Wire> make(MPI_Comm owned, ThreadLevel level);
  // True if a wire waits for free_ended().
  static bool has_ended();
  // Frees the communicators of wires that all ranks have ended, once all messages have arrived. Never waits. MPI
  // may give a freed communicator's context to the next one, and a late message would arrive there.
  static void free_ended() noexcept;
  // Keeps an object that other ranks may need, until all of them have ended the wire.
  void keep_until_all_end(std::shared_ptr<void> kept) { kept_ = std::move(kept); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const TagLayout& tags() const { return tags_; }
  // Names the processes in the words of a stall, as soon as the session knows where they run.
  void set_members(Members members) { members_ = std::move(members); }
  const Members& members() const { return members_; }

  // Gives leave to call MPI, and is held during the call. With MPI_THREAD_SERIALIZED one thread of the process has it
  // at a time, for all wires. With MPI_THREAD_MULTIPLE all threads may have it. Below that, only the thread that
  // started MPI gets it; others get Error thread_level.
  struct MpiAccess {
    std::unique_lock<std::mutex> alone;
    std::shared_lock<std::shared_mutex> together;
  };
  MpiAccess access();

  // Starts a send, and keeps the bytes until MPI has sent them. flushed() is true when it has sent all of a channel.
  // Throws Error usage for 2 GiB and more.
  void send(int target, int tag, Bytes bytes);
  bool flushed(int channel);

  struct ReceivedMessage {
    int source;
    Bytes bytes;
  };
  // Returns a whole message that is here, or nothing. `source` may be any (-1). Never blocks.
  std::optional<ReceivedMessage> try_receive(int source, int tag);

  // Returns the bytes of the next message of data that is here. The caller holds MpiAccess.
  std::optional<std::size_t> next_bytes(int source, int tag);
  // Starts to receive that message. The caller holds MpiAccess, and keeps `into` until the request is done.
  MPI_Request receive_next(int source, int tag, std::byte* into, std::size_t bytes);

  // Messages that nobody received outlive their exchange: MPI keeps them for the next receive with their tag. So a
  // process that opens a channel anew sends a marker to each process that may have such messages from it. That process
  // takes out of MPI everything that comes before the marker. MPI keeps the order of two messages only for receives
  // that match both, so it matches every message of that process.
  //
  // The map holds the processes that may have such messages. Its value is the size of the shortest that its sender has
  // given up, in bytes; SIZE_MAX if there is none. The memory of such a message may be gone, so nobody may receive it.
  using UnreceivedMessages = std::map<int, std::size_t>;
  void note_unreceived(int channel, const UnreceivedMessages& by_process);
  UnreceivedMessages take_unreceived(int channel);
  void send_marker(int channel, int process, std::uint32_t generation, std::size_t given_up);
  // Returns true once the marker is here, and all before it is dropped. Never blocks.
  class Clearing;
  bool clear(Clearing& clearing);

  // True if MPI_Finalize has been called; MPI may then not be called for anything.
  static bool ended();

  // Leaves a channel's undelivered messages to MPI after a failure, so that nothing waits for them.
  void abandon(int channel) {
    abandon_leaving(channel);
    abandon_arriving(channel);
  }
  void abandon_leaving(int channel);
  void abandon_arriving(int channel);
  void abandon_all();
  // Abandons all after a failure of the session. It tells the other ranks nothing at the end, since they may be dead.
  void end_in_silence();
  // Leaves the communicator to MPI: others may still send to us on it, or MPI may still use memory that it was given.
  void leave_to_mpi();
  // Returns the mutex that a thread of this process holds while it chooses a channel for a new exchange on this wire.
  std::mutex& choosing() { return choosing_; }

  // Return and change the channels in use by this process, and the newest generation that it knows.
  std::vector<int> channels();
  std::uint32_t generation() const { return generation_; }
  void set_generation(std::uint32_t generation) { generation_ = generation; }
  void take_channel(int channel);
  void give_back_channel(int channel);
  int largest_channel() const { return tags_.channels - 1; }
  int tag(int channel, int kind) const { return tags_.set_up(channel, kind); }
  static constexpr int marker_kind = 6;  // the other kinds are those of MpiExchange

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct SetUpSend {
    int channel;
    MPI_Request request;
    std::unique_ptr<Bytes> bytes;
  };
  struct SetUpReceive {
    MPI_Request request;
    int source;
    std::unique_ptr<Bytes> bytes;
  };
  // Was taken out of MPI's queue, and is not received yet.
  struct MatchedMessage {
    int source;
    int tag;
    std::size_t bytes;
    MPI_Message message;
  };
  using SourceTag = std::pair<int, int>;  // wanted source (-1: any), tag

  Lock enter();
  static void refuse_if_ended();
  void collect_the_gone();
  // Counts messages from one rank to another, and ranks that have left their communicator to MPI.
  struct Tally {
    std::int64_t messages;
    std::int64_t abandoned;
  };
  static void retire(std::unique_ptr<Wire> wire) noexcept;
  static int at_finalize(MPI_Comm self, int key, void* value, void* state);
  void begin_tally();
  bool finish();
  bool receive_anything();
  std::optional<MatchedMessage> match(int source, int tag);
  std::optional<MatchedMessage> take_aside(int source, int tag);
  std::optional<MatchedMessage> take_aside_of(const Clearing& clearing);
  SetUpReceive receive(MatchedMessage matched);
  void drop_arriving(const Clearing& clearing);
  void drop(Clearing& clearing);
  void abandon_leftovers();

  MPI_Comm comm_;
  ThreadLevel level_;
  int rank_ = 0;
  int size_ = 0;
  TagLayout tags_;
  Members members_;
  std::mutex own_;
  std::mutex& mutex_;               // guards MPI and all below; our own if MPI guards itself, else the process's
  std::vector<std::int64_t> sent_;  // number of set-up messages sent to each rank
  std::int64_t received_ = 0;
  std::vector<SetUpSend> leaving_;
  std::size_t collect_at_ = 16;  // the number of leaving messages at which finished ones are looked for
  std::map<SourceTag, SetUpReceive> arriving_;
  std::vector<SetUpReceive> dropping_;            // nobody waits for these
  std::map<int, UnreceivedMessages> unreceived_;  // by channel
  std::mutex aside_mutex_;                        // guards the two members below; taken last
  std::vector<MatchedMessage> aside_;             // met before a marker, of other channels; in their order
  std::atomic<bool> has_aside_ = false;
  std::shared_mutex together_;  // with MPI_THREAD_MULTIPLE: a thread that clears a channel is alone
  std::atomic<int> waiting_to_clear_ = 0;
  std::vector<int> channels_;
  std::atomic<std::uint32_t> generation_ = 0;
  bool abandoned_ = false;
  bool is_silent_ = false;
  std::mutex choosing_;
  std::vector<Tally> told_;  // counts sent to each rank at the end; empty before
  Tally total_{};            // counts sent to this rank, by all
  MPI_Request tally_ = MPI_REQUEST_NULL;
  std::shared_ptr<void> kept_;
};

// Takes out of MPI the messages that a process sent on a channel before it opened this generation of it.
class Wire::Clearing {
 public:
  Clearing(int channel, int source, std::uint32_t generation)
      : channel_(channel), source_(source), generation_(generation) {}
  int source() const { return source_; }

 private:
  friend class Wire;
  int channel_;
  int source_;
  std::uint32_t generation_;
  std::vector<MatchedMessage> leftovers_;
  std::optional<SetUpReceive> marker_;
  std::size_t given_up_ = SIZE_MAX;  // bytes of the shortest message that must not be received
};

}  // namespace lockstep
