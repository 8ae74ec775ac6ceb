// SPDX-License-Identifier: Apache-2.0
// Owns the communicators of a process's replicas. They are made together, and made again after a failure.
//
// A strategy owns them. Only the thread that calls the strategy makes them again after a failure.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "runtime/failure_agreement.hpp"
#include "runtime/process_channels.hpp"
#include "runtime/replica_threads.hpp"
#include "runtime/strategy_config.hpp"

namespace lockstep::detail {

// Belongs to one strategy. Each seat has one member of the group of all.
class ReplicaMembers {
 public:
  // Makes the communicator of a seat of this process among all seats. The seat's own thread calls it.
  using MakeMember = std::function<std::unique_ptr<Communicator>(int seat)>;
  // Returns a maker of new members. All processes call it, at first and after a failure.
  using Prepare = std::function<MakeMember()>;

  explicit ReplicaMembers(const StrategyConfig& config, ProcessChannels& channels)
      : config_(config), channels_(channels) {}

  // Returns the maker of members that are threads of this process, `size` in all. `name` is that of their communicator.
  static MakeMember in_this_process(int size, const ResolvedOptions& options, std::string name = "replicas");
  // Returns the maker of the channels of a process that has no others. `options` must outlive it.
  static ProcessChannels::MakeChannel channels_alone(const ResolvedOptions& options);
  // Makes the member of each of `seats` seats in this process, in the seat's thread. `threads` must live until
  // end(). After a failure, restore() makes them again by the same function.
  void begin(ReplicaThreads& threads, int seats, Prepare prepare);
  // Serves each thread by a member that the function returns, instead of members that are made together.
  void serve_each_thread(std::function<Communicator&()> member_of_thread);
  Communicator& at(int seat) {
    return member_of_thread_ ? member_of_thread_() : *communicators_.at(static_cast<std::size_t>(seat));
  }
  // Returns the first replica's member; null if members were not made together, or it has failed.
  Communicator* first() const;
  bool have_failed() const;
  // True if the next call must make the members again.
  bool need_restoring() const { return communicators_.empty() || have_failed(); }

  // Makes the members again, together with all processes. Returns the failure on which processes agree; nothing if
  // there is only this one. Throws Error already_failed if they cannot be made.
  std::optional<RunFailure> restore();
  // Ends the wait of other members for a replica that has failed.
  void refuse(int seat, const std::string& why);
  // Tells the other processes of a failure in this one, and waits a while for theirs. Returns the failure that all of
  // them report, or this one if others are late. Returns nothing if the processes cannot agree any more, because one
  // is gone or was waited for in vain.
  std::optional<RunFailure> agree(const RunFailure& mine, bool has_stalled);
  // Waits for unfinished GPU work, by all members together, unless an exception is in flight.
  void end() noexcept;

 private:
  void make(const MakeMember& make);

  const StrategyConfig& config_;
  ProcessChannels& channels_;
  Prepare prepare_;
  std::mutex refusing_;  // Guards the refusal of the training channel, since several replicas may fail at once.
  std::unique_ptr<FailureAgreement> agreement_;  // Is null if all replicas are in this process.
  ReplicaThreads* threads_ = nullptr;
  int seats_ = 0;
  std::function<Communicator&()> member_of_thread_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // Is indexed by seat.
};

}  // namespace lockstep::detail
