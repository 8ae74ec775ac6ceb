// SPDX-License-Identifier: Apache-2.0
// Owns the communicators of a process's replicas. They are made together, and made again after a failure.
//
// A strategy owns them. Only the thread that calls the strategy makes them again after a failure.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/replica_threads.hpp"
#include "runtime/strategy_config.hpp"

namespace lockstep::detail {

// Belongs to one strategy. Each replica has one member of the group of all replicas.
class ReplicaMembers {
 public:
  // Makes the communicator of a local replica among all replicas. The replica's own thread calls it.
  using MakeMember = std::function<std::unique_ptr<Communicator>(int local)>;

  explicit ReplicaMembers(const StrategyConfig& config) : config_(config) {}

  // Returns the maker of members that are threads of this process, `size` in all.
  static MakeMember in_this_process(int size, const ResolvedOptions& options);
  // Makes the member of each replica in the replica's thread, `replicas` in this process. `threads` must live until
  // end().
  void begin(ReplicaThreads& threads, int replicas, const MakeMember& make);
  // Serves each thread by a member that the function returns, instead of members that are made together.
  void serve_each_thread(std::function<Communicator&()> member_of_thread);
  // Sets the communicator that has one member for each process. None is needed if each process has one replica.
  void set_leader(std::unique_ptr<Communicator> leader);

  Communicator& at(int local) {
    return member_of_thread_ ? member_of_thread_() : *communicators_.at(static_cast<std::size_t>(local));
  }
  // Returns the communicator of the processes; null if there is none.
  Communicator* leader() { return leader_.get(); }
  // Returns the first replica's member; null if members were not made together, or it has failed.
  Communicator* first() const;
  bool have_failed() const;

  // Makes failed members again, if all replicas are in this process. Otherwise their next call throws that they have
  // failed. Throws Error already_failed if they could not be made.
  void restore();
  // Ends the wait of other members for a replica that has failed.
  void refuse(int local, const std::string& why);
  // Waits for unfinished GPU work, by all members together, unless an exception is in flight.
  void end() noexcept;

 private:
  void make(const MakeMember& make);

  const StrategyConfig& config_;
  ReplicaThreads* threads_ = nullptr;
  int replicas_ = 0;
  std::function<Communicator&()> member_of_thread_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // Is indexed by local replica.
  std::unique_ptr<Communicator> leader_;
};

}  // namespace lockstep::detail
