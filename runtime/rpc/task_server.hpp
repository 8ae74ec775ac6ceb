// SPDX-License-Identifier: Apache-2.0
// Serves one task of a cluster. Other tasks learn from it that the task is there and has the same cluster, and tell it
// when the job is over.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/cluster_spec.hpp"
#include "runtime/rpc/rpc.hpp"
#include "topology/base/log.hpp"
#include "topology/base/time_span.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Holds the options of a task's server.
struct TaskServerOptions {
  // Is the address to listen on. Empty means the task's address in the cluster.
  std::string listen = {};
  // Limits the time without an answer from the leading task, once that was there. join() then throws.
  TimeSpan lost_after = TimeSpan::seconds(30);
  Log log = Log();
  // Holds the key that all tasks share: calls and answers without it are refused. Null lets every process call, and end
  // the cluster.
  std::shared_ptr<const Secret> key = nullptr;
};

// Owns the RPC server of this process's task.
class Server {
 public:
  // Makes the server; start() opens it. Throws Error cluster if there is no such task, or two tasks share an address.
  Server(ClusterSpec cluster, std::string job, int index, TaskServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns the server, so that a program can add functions before it starts.
  rpc::RpcServer& functions() { return *rpc_; }
  // Starts listening, once. Throws Error system if it cannot. The waiting functions below call it first.
  void start();
  std::string target() const { return rpc_->target(); }  // Returns "grpc://host1:12345".

  // Waits until every task but evaluators has its server. Throws Error stall after `limit`, naming the missing tasks,
  // and cluster if a task has another cluster. Returns early if the cluster is over.
  void wait_for_all(TimeSpan limit = TimeSpan::seconds(300));
  // Waits for the chief and the workers only. After wait_limits.warn it logs the missing tasks; after wait_limits.limit
  // it throws. A limit of zero waits for ever.
  void wait_for_workers(WaitLimits wait_limits = {});
  // Returns the name of a training task that has no server any more. Returns nothing if all have one, or don't answer.
  std::optional<std::string> gone_worker() const;
  // Waits until a task has called shut_down_all(). Throws Error peer_failed if the leading task ends without that: the
  // chief, or worker 0 without a chief.
  void join();
  // Tells all tasks that the cluster is over. Tasks that are gone are skipped.
  void shut_down_all();

 private:
  struct PeerTask {
    Task task;
    std::string address;
  };
  std::string name_of(const PeerTask& other) const;
  std::string task_mismatch(const PeerTask& other, const std::vector<std::string>& said) const;
  std::unique_ptr<rpc::Client> client_of(const PeerTask& other, TimeSpan timeout, bool waits) const;
  void wait_for(std::vector<PeerTask> missing, WaitLimits wait_limits);
  std::vector<PeerTask> workers() const;
  std::string names_of_all(const std::vector<PeerTask>& some) const;
  std::vector<PeerTask> peers(bool with_evaluators) const;
  rpc::StatusOrResult<std::vector<std::string>> ask(rpc::Client& other) const;
  void refuse_stranger();
  [[noreturn]] void refuse_missing(const std::vector<PeerTask>& missing, TimeSpan limit) const;
  bool is_over_within(TimeSpan time);
  bool is_there(const PeerTask& other) const;

  ClusterSpec cluster_;
  Task me_;
  TaskServerOptions options_;
  struct Signal;  // Guards the two members below it, and tells of their changes.
  std::unique_ptr<Signal> signal_;
  bool over_ = false;
  std::string stranger_;  // Describes a caller of another cluster.
  bool started_ = false;
  bool knows_leader_ = false;  // True if the leader was there.
  std::unique_ptr<rpc::RpcServer> rpc_;
};

}  // namespace lockstep
