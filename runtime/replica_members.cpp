// SPDX-License-Identifier: Apache-2.0
// Makes the communicators of a process's replicas, and makes them again after a failure.
#include "runtime/replica_members.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/local.hpp"
#include "collectives/engine/local_transport.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::detail {

ReplicaMembers::MakeMember ReplicaMembers::in_this_process(int size, const ResolvedOptions& options) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto exchanges = std::make_shared<std::vector<std::unique_ptr<Exchange>>>(
      make_local_exchanges(size, options.wait_limits, options.log));
  const CommunicatorOptions of_each{.order = options.order,
                                    .name = "replicas",
                                    .node_memory = options.node_memory,
                                    .algorithm = options.algorithm,
                                    .table = options.table,
                                    .table_name = options.table_path,
                                    .nccl = options.nccl,
                                    .strict = options.strict};
  return [=, topology = local_topology(size)](int local) {
    return std::make_unique<Communicator>(*exchanges->at(static_cast<std::size_t>(local)), topology, ranks,
                                          local_transport, of_each);
  };
}

void ReplicaMembers::begin(ReplicaThreads& threads, int replicas, const MakeMember& make) {
  threads_ = &threads;
  replicas_ = replicas;
  this->make(make);
}

void ReplicaMembers::serve_each_thread(std::function<Communicator&()> member_of_thread) {
  member_of_thread_ = std::move(member_of_thread);
}

void ReplicaMembers::set_leader(std::unique_ptr<Communicator> leader) {
  leader_ = std::move(leader);
  leader_->set_timeout(config_.limit());
}

Communicator* ReplicaMembers::first() const {
  return communicators_.empty() || communicators_.front()->failed() ? nullptr : communicators_.front().get();
}

bool ReplicaMembers::have_failed() const {
  return std::ranges::any_of(communicators_, [](const auto& each) { return each->failed(); });
}

void ReplicaMembers::end() noexcept {
  if (config_.uses_nccl() && communicators_.size() > 1) {
    const bool is_left = std::uncaught_exceptions() > 0;
    for (const auto& each : communicators_) {
      if (is_left) each->core()->member().refuse(Error(Code::peer_failed, "an exception ends the strategy"));
    }
    threads_->run([&](int local) { communicators_[static_cast<std::size_t>(local)].reset(); },
                  [](int, const std::string&) {});
  }
}

// Makes each member in its own thread, since members are made together.
void ReplicaMembers::make(const MakeMember& make) {
  end();
  communicators_.clear();
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(replicas_));
  const auto failures = threads_->run([&](int local) { made[static_cast<std::size_t>(local)] = make(local); },
                                      [](int, const std::string&) {});
  if (!failures.empty()) std::rethrow_exception(failures.front().cause);
  communicators_ = std::move(made);
  for (const auto& each : communicators_) each->set_timeout(config_.limit());
}

void ReplicaMembers::restore() {
  if (!communicators_.empty() && !have_failed()) return;
  if (replicas_ == config_.size()) make(in_this_process(replicas_, config_.options()));
  if (communicators_.empty())
    throw Error(Code::already_failed, text(config_.describe(), " could not be made again after a failure"),
                "make a new strategy");
}

void ReplicaMembers::refuse(int local, const std::string& why) {
  at(local).core()->member().refuse(Error(Code::peer_failed, why));
  if (leader_) leader_->core()->member().refuse(Error(Code::peer_failed, why));
}

}  // namespace lockstep::detail
