// SPDX-License-Identifier: Apache-2.0
// Holds a member's end of a communicator: who the members are, and how this one reaches the others.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator_options.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "collectives/node/symmetric.hpp"
#include "collectives/origin.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"
#include "topology/topology.hpp"

namespace lockstep {

class Planner;

namespace detail {

// Owns the exchange, the engine and the planner of one member. It tells the other members of this one's failures.
// ExclusiveUse admits one thread at a time.
class CommunicatorMember {
 public:
  // Makes this member's part of a communicator; all members call it. `ranks` are the members' ranks in `topology`, and
  // `has_gpus` tells if this member could run calls on GPUs. Throws Error internal if `maker` returns null.
  CommunicatorMember(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                     std::vector<int> ranks, const TransportMaker& maker, CommunicatorOptions options,
                     node::MemoryLineage lineage, bool has_gpus);
  CommunicatorMember(const CommunicatorMember&) = delete;
  CommunicatorMember& operator=(const CommunicatorMember&) = delete;
  ~CommunicatorMember();

  int rank() const { return exchange_->rank(); }
  int size() const { return exchange_->size(); }
  const CommunicatorOptions& options() const { return options_; }
  // Sets the timeout of this member's later calls. Throws Error usage if it is negative.
  void set_timeout(Duration timeout);
  const std::shared_ptr<const Topology>& topology() const { return topology_; }
  // True if every member could run calls on GPUs. It is equal on all members.
  bool all_have_gpus() const { return all_have_gpus_; }

  Exchange& exchange() const { return *exchange_; }
  // Returns the engine, which is gone after close().
  Engine<RealPlatform>& engine() const { return *engine_; }
  // Returns the planner, whose group holds the members' ranks in the topology.
  Planner& planner() const { return *planner_; }

  // Tells the other members of a call that this one cannot make, so that they do not wait for it.
  void refuse(const Error& error) noexcept;
  // Returns f(). If f throws an Error, it tells the other members, so that they don't wait.
  template <class F>
  auto or_refuse(const F& f) {
    try {
      return f();
    } catch (const Error& error) {
      refuse(error);
      throw;
    }
  }

  bool is_closed() const { return is_closed_; }
  void refuse_if_closed() const {
    if (is_closed_) [[unlikely]]
      refuse_closed();
  }
  // Closes the engine after `end` has ended what uses it, and then calls `keep` if messages may still use this member's
  // memory. Does nothing the second time. Ends the process if a call is still running.
  void close(const std::function<void()>& end, const std::function<void()>& keep) noexcept;
  // Sets the function that is called at the end of each use after a failure.
  void call_after_failure(std::function<void()> f) { after_failure_ = std::move(f); }

 private:
  friend class ExclusiveUse;

  void make_engine(std::vector<int> ranks, const TransportMaker& maker, node::MemoryLineage lineage, bool has_gpus);
  [[noreturn]] void refuse_closed() const;
  [[noreturn]] void refuse_end_inside() const;

  CommunicatorOptions options_;
  std::unique_ptr<Exchange> exchange_;
  std::shared_ptr<const Topology> topology_;
  bool all_have_gpus_ = true;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<Engine<RealPlatform>> engine_;
  std::function<void()> after_failure_;
  std::atomic<const Origin*> user_ = nullptr;  // Points to the place of the call inside; null if none is.
  bool is_closed_ = false;
};

}  // namespace detail
}  // namespace lockstep
