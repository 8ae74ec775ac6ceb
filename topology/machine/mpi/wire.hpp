// SPDX-License-Identifier: Apache-2.0
// Our own lane through MPI: one private communicator, on which nothing ever blocks. Channels (ranges of tags) keep the
// exchanges that share it apart, and their data apart from their set-up messages.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "topology/machine/mpi/arrived_messages.hpp"
#include "topology/machine/mpi/channel_clearing.hpp"
#include "topology/machine/mpi/channel_table.hpp"
#include "topology/machine/mpi/mpi_communicator.hpp"
#include "topology/machine/mpi/set_up_messages.hpp"
#include "topology/members.hpp"

namespace lockstep {

// Owns the communicator with everything that sends and receives on it, and frees it when no message can come late.
class Wire {
 public:
  // Takes the communicator, which must be private to us, and frees it at the end. Messages under way leave it to MPI.
  Wire(MPI_Comm owned, ThreadLevel level);
  ~Wire();
  // Makes a wire that ends without waiting for other ranks. When its last owner is gone, this rank tells the others how
  // many messages it has sent (a nonblocking reduction). free_ended() frees the communicator later.
  static std::shared_ptr<Wire> make(MPI_Comm owned, ThreadLevel level);
  // Returns true if a wire waits for free_ended().
  static bool has_ended();
  // Frees the communicators of wires that all ranks have ended, once all messages have arrived. Never waits. MPI
  // may give a freed communicator's context to the next one, and a late message would arrive there.
  static void free_ended() noexcept;
  // Keeps an object that other ranks may need, until all of them have ended the wire.
  void keep_until_all_end(std::shared_ptr<void> kept) { kept_ = std::move(kept); }
  // Abandons all after a failure of the session. It tells the other ranks nothing at the end, since they may be dead.
  void end_in_silence();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Return the parts.
  MpiCommunicator& comm() { return comm_; }
  ChannelTable& channels() { return channels_; }
  ArrivedMessages& arrived() { return arrived_; }
  SetUpMessages& set_up() { return set_up_; }
  ChannelClearing& clearing() { return clearing_; }

  // Names the processes in the words of a stall, as soon as the session knows where they run.
  void set_members(Members members) { members_ = std::move(members); }
  const Members& members() const { return members_; }

 private:
  // Counts messages from one rank to another, and ranks that have left their communicator to MPI.
  struct Tally {
    std::int64_t messages;
    std::int64_t abandoned;
  };

  static void retire(std::unique_ptr<Wire> wire) noexcept;
  static int at_finalize(MPI_Comm self, int key, void* value, void* state);
  void abandon_all();
  void begin_tally();
  bool finish();

  MpiCommunicator comm_;
  Members members_;
  ChannelTable channels_;
  ArrivedMessages arrived_{comm_};
  SetUpMessages set_up_{comm_, arrived_};
  ChannelClearing clearing_{comm_, arrived_, set_up_};
  bool is_silent_ = false;
  std::vector<Tally> final_counts_;  // counts sent to each rank at the end; empty before
  Tally total_{};                    // counts sent to this rank, by all
  MPI_Request tally_ = MPI_REQUEST_NULL;
  std::shared_ptr<void> kept_;
};

}  // namespace lockstep
