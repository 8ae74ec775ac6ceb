// SPDX-License-Identifier: Apache-2.0
// Makes calls of all replicas' members from one thread, in cross-replica context.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "collectives/communicator/call_subject.hpp"
#include "collectives/communicator/communicator.hpp"
#include "runtime/communication.hpp"
#include "runtime/context.hpp"
#include "runtime/gather_layout.hpp"
#include "runtime/named_op.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep::detail {

class LocalReplicas;
class ProcessChannels;
class ReplicaDevices;
class ReplicaMembers;
class StrategyConfig;

// Throws Error usage unless the strategy has this number of replicas in this process.
void check_parts(const Strategy& strategy, int parts);
// Checks each PerReplica in an argument of the strategy's calls.
template <class T>
void check_argument(const Strategy& strategy, const T& argument) {
  for_each_number_of_parts(argument, [&](int parts) { check_parts(strategy, parts); });
}

// Belongs to one strategy. A call here is one call of each member of this process. It waits for all of them.
class ReplicaCalls {
 public:
  using Start = std::function<Request(Communicator& member, int local)>;

  ReplicaCalls(Strategy& strategy, const StrategyConfig& config, const ReplicaDevices& devices,
               ProcessChannels& channels, LocalReplicas& replicas, ReplicaMembers& members)
      : strategy_(strategy),
        config_(config),
        devices_(devices),
        channels_(channels),
        replicas_(replicas),
        members_(members) {}
  // Returns the calls of that strategy, which owns them.
  static ReplicaCalls& of(const Strategy& strategy);

  // Starts a call of every local member, perhaps in several threads, and waits for all.
  void run_all(const Start& start, Origin origin, const CallSubject& subject = {});
  // Runs a function that needs no call, where a call would be allowed.
  void run_here(const std::function<void()>& function);
  // Calls a function with the communicator of the processes.
  void run_leader(const std::function<void(Communicator& leader)>& call);
  // True if the program gave cross-device operations of its own, which then combine all values.
  bool has_own_ops() const;
  // Combines values, in place, by the strategy's cross-device operations.
  void combine(NamedOp op, const std::vector<TensorViews>& values, const CommunicationOptions& options, Origin origin,
               const CallSubject& subject);
  // Writes the values of all replicas, one after the other, into `all`, by the strategy's cross-device operations.
  void concatenate(const TensorViews& value, const std::vector<std::size_t>& counts, const TensorView& all,
                   Origin origin);
  // Returns the subject of the collectives that this process's replicas are in. Throws Error mismatch if they differ.
  CallSubject common_subject(Origin origin);
  // Gathers an equal number of values from every replica, in order; `mine` holds those of the local replicas. All
  // processes call it.
  template <class Numbers>
  std::vector<typename Numbers::value_type> values_of_all(const std::vector<Numbers>& mine, Origin origin,
                                                          const CallSubject& subject = {});
  // Returns the shapes of every replica, in order. All processes call it.
  template <class T>
  std::vector<TensorShape> shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call, Origin origin);

 private:
  // Holds the guard of a call for all replicas; nothing inside merge_call.
  class CallGuard;
  int size() const;
  // Adds the merge_calls of a replica since its last collective.
  CallSubject with_merges(CallSubject subject, int local);
  // Starts each member's call in a thread of its own. Calls that first ask the other members need this.
  void run_apart(const Start& start, Origin origin, const CallSubject& subject);
  void run_in_new_threads(const std::function<void(int seat)>& job);
  void give_up(std::vector<Request>& begun, const Error& why, Origin origin);

  Strategy& strategy_;
  const StrategyConfig& config_;
  const ReplicaDevices& devices_;
  ProcessChannels& channels_;
  LocalReplicas& replicas_;
  ReplicaMembers& members_;
};

template <class Numbers>
std::vector<typename Numbers::value_type> ReplicaCalls::values_of_all(const std::vector<Numbers>& mine, Origin origin,
                                                                      const CallSubject& subject) {
  const std::size_t numbers = static_cast<std::size_t>(size()) * mine.front().size();
  std::vector<std::vector<typename Numbers::value_type>> all(mine.size(),
                                                             std::vector<typename Numbers::value_type>(numbers));
  run_all(
      [&](Communicator& member, int local) {
        const auto i = static_cast<std::size_t>(local);
        return member.all_gather_async(mine[i], all[i], origin);
      },
      origin, subject);
  return std::move(all.front());
}

template <class T>
std::vector<TensorShape> ReplicaCalls::shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call,
                                                     Origin origin) {
  require_cross_replica(strategy_, call);
  check_parts(strategy_, value.size());
  std::vector<EncodedShape> mine;
  for (const Tensor<T>& part : value.local()) mine.push_back(encode_shape(part.shape()));
  return decode_shapes(values_of_all(mine, origin));
}

}  // namespace lockstep::detail
