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

ReplicaMembers::MakeMember ReplicaMembers::in_this_process(int size, const ResolvedOptions& options, std::string name) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto exchanges = std::make_shared<std::vector<std::unique_ptr<Exchange>>>(
      make_local_exchanges(size, options.wait_limits, options.log));
  const CommunicatorOptions of_each{.order = options.order,
                                    .name = std::move(name),
                                    .node_memory = options.node_memory,
                                    .algorithm = options.algorithm,
                                    .table = options.table,
                                    .table_name = options.table_path,
                                    .nccl = options.nccl,
                                    .strict = options.strict,
                                    .member = "replica"};
  return [=, topology = local_topology(size)](int seat) {
    return std::make_unique<Communicator>(*exchanges->at(static_cast<std::size_t>(seat)), topology, ranks,
                                          local_transport, of_each);
  };
}

ProcessChannels::MakeChannel ReplicaMembers::channels_alone(const ResolvedOptions& options) {
  return [&options](Channel channel) {
    return std::move(*in_this_process(1, options, text(to_string(channel), " channel"))(0));
  };
}

void ReplicaMembers::begin(ReplicaThreads& threads, int seats, Prepare prepare) {
  threads_ = &threads;
  seats_ = seats;
  prepare_ = std::move(prepare);
  if (seats != config_.size()) agreement_ = std::make_unique<FailureAgreement>(channels_.at(Channel::health));
  make(prepare_());
}

void ReplicaMembers::serve_each_thread(std::function<Communicator&()> member_of_thread) {
  member_of_thread_ = std::move(member_of_thread);
}

Communicator* ReplicaMembers::first() const {
  return communicators_.empty() || communicators_.front()->failed() ? nullptr : communicators_.front().get();
}

bool ReplicaMembers::have_failed() const {
  if (agreement_ && channels_.at(Channel::training).failed()) return true;
  return std::ranges::any_of(communicators_, [](const auto& each) { return each->failed(); });
}

void ReplicaMembers::end() noexcept {
  if (config_.uses_nccl() && communicators_.size() > 1) {
    const bool is_left = std::uncaught_exceptions() > 0;
    for (const auto& each : communicators_) {
      if (is_left) each->core()->member().refuse(Error(Code::peer_failed, "an exception ends the strategy"));
    }
    threads_->run([&](int seat) { communicators_[static_cast<std::size_t>(seat)].reset(); },
                  [](int, const std::string&) {});
  }
}

// Makes each member in its own thread, since members are made together.
void ReplicaMembers::make(const MakeMember& make) {
  end();
  communicators_.clear();
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(seats_));
  const auto failures = threads_->run([&](int seat) { made[static_cast<std::size_t>(seat)] = make(seat); },
                                      [](int, const std::string&) {});
  if (!failures.empty()) std::rethrow_exception(failures.front().cause);
  communicators_ = std::move(made);
  for (const auto& each : communicators_) each->set_timeout(config_.limit());
}

std::optional<RunFailure> ReplicaMembers::restore() {
  std::optional<RunFailure> failure;
  try {
    if (agreement_) {
      agreement_->contribute({});
      failure = agreement_->wait();
      channels_.at(Channel::health).barrier();  // No process makes members before all have come here.
    }
    make(prepare_());
  } catch (const Error& error) {
    throw Error(Code::already_failed,
                text(config_.describe(), " could not be made again after a failure: ", error.detail()),
                "make a new strategy, and adopt() the variables of this one");
  }
  return failure;
}

void ReplicaMembers::refuse(int seat, const std::string& why) {
  at(seat).core()->member().refuse(Error(Code::peer_failed, why));
  if (!agreement_) return;
  Communicator& training = channels_.at(Channel::training);
  const std::lock_guard lock(refusing_);
  if (!training.failed()) training.core()->member().refuse(Error(Code::peer_failed, why));
}

std::optional<RunFailure> ReplicaMembers::agree(const RunFailure& mine, bool has_stalled) {
  if (!agreement_) return mine;
  try {
    if (has_stalled) agreement_->refuse(Error(Code::peer_failed, "a replica was waited for in vain"));
    agreement_->contribute(mine);
    const Duration warn = config_.options().wait_limits.warn;
    return agreement_->wait_for(warn > Duration{} ? warn : config_.limit()).value_or(mine);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::detail
