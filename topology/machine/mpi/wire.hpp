// SPDX-License-Identifier: Apache-2.0
// Our own lane through MPI: one private duplicate of a communicator, on which nothing ever blocks.
// Channels (tags) keep the exchanges that share it apart, and their data apart from their set-up messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/machine/mpi/tag_layout.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class Wire {
 public:
  // Takes the communicator, which must be private to us, and frees it at the end.
  Wire(MPI_Comm owned, ThreadLevel level);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const TagLayout& tags() const { return tags_; }

  // Leave to call MPI, held while it is called: by one thread of the process at a time with MPI_THREAD_SERIALIZED,
  // whatever wires there are; by all at once with MPI_THREAD_MULTIPLE; below that, only by the thread that started MPI.
  using Turn = std::unique_lock<std::mutex>;
  Turn turn();

  // The bytes are kept here until they are gone; flushed() says when all of a channel are.
  void send(int target, int tag, Bytes bytes);
  bool flushed(int channel);

  struct Arrived {
    int source;
    Bytes bytes;
  };
  // A message that is here, whole, or nothing. `source` may be any (-1). Never blocks.
  std::optional<Arrived> try_receive(int source, int tag);

  // Whether MPI_Finalize has been called, after which MPI may not be called for anything.
  static bool ended();

  // After a failure: what cannot be delivered any more is left to MPI, and nothing waits for it.
  void abandon(int channel) {
    abandon_leaving(channel);
    abandon_arriving(channel);
  }
  void abandon_leaving(int channel);
  void abandon_arriving(int channel);
  void abandon_all();
  // At the end, called by all: receives the set-up messages that were sent to this process and that nobody has asked
  // for. MPI may give this communicator's context to the next one, and they would arrive there. What has not come
  // within the time leaves the communicator to MPI.
  void receive_the_rest(std::chrono::nanoseconds limit);
  // Others may still send to us on this wire, or MPI still use memory that it was given: its communicator stays.
  void leave_to_mpi();
  // Held by who chooses a channel for a new exchange, among all that this process is a member of.
  std::mutex& choosing() { return choosing_; }

  // Channels in use by this process, and one taken or given back; the newest generation that it knows.
  std::vector<int> channels();
  std::uint32_t generation() const { return generation_; }
  void set_generation(std::uint32_t generation) { generation_ = generation; }
  void take_channel(int channel);
  void give_back_channel(int channel);
  int largest_channel() const { return tags_.channels - 1; }
  int tag(int channel, int kind) const { return tags_.set_up(channel, kind); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  static int channel_of(int tag) { return tag / TagLayout::kinds; }
  struct Leaving {
    int channel;
    MPI_Request request;
    std::unique_ptr<Bytes> bytes;
  };
  struct Arriving {
    MPI_Request request;
    int source;
    std::unique_ptr<Bytes> bytes;
  };
  using Key = std::pair<int, int>;  // wanted source, tag

  Lock enter();
  static void refuse_if_ended();
  void collect_the_gone();
  std::optional<std::int64_t> number_sent_to_us(std::chrono::steady_clock::time_point end);
  bool receive_anything();

  MPI_Comm comm_;
  ThreadLevel level_;
  int rank_ = 0;
  int size_ = 0;
  TagLayout tags_;
  std::mutex own_;
  std::mutex& mutex_;               // guards MPI and what follows; our own where MPI guards itself, else the process's
  std::vector<std::int64_t> sent_;  // set-up messages, to each
  std::int64_t received_ = 0;
  std::vector<Leaving> leaving_;
  std::size_t collect_at_ = 16;  // so many leaving are looked through for those that are gone
  std::map<Key, Arriving> arriving_;
  std::vector<int> channels_;
  std::atomic<std::uint32_t> generation_ = 0;
  bool abandoned_ = false;
  std::mutex choosing_;
};

}  // namespace lockstep
