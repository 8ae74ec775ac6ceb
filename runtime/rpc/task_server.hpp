// SPDX-License-Identifier: Apache-2.0
// The server of one task of a cluster: others see by it that the task is there and of the same cluster, and tell it
// when all is over.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/cluster_spec.hpp"
#include "runtime/rpc/rpc.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

struct TaskServerOptions {
  // What it listens on; nothing: the task's address in the cluster.
  std::string listen = {};
  // After how long without an answer from the one that leads the cluster, once it was there, join() gives up.
  Duration lost_after = std::chrono::seconds(30);
  Log log = Log();
  // What all tasks have: without it nobody is answered, or believed. Nothing: anybody can call, and end the cluster.
  std::shared_ptr<const Secret> key = nullptr;
};

class Server {
 public:
  // Throws Error cluster where there is no such task.
  Server(ClusterSpec cluster, std::string job, int index, TaskServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What others may call beside: add functions before it starts.
  rpc::RpcServer& functions() { return *rpc_; }
  // Listens from now on; once. Throws Error system where it cannot. Those below begin with it.
  void start();
  std::string target() const { return rpc_->target(); }  // "grpc://host1:12345"

  // Until every task of the cluster has its server, but for evaluators, who come and go. Throws Error stall, which
  // names those that have none, and cluster, which names one of another cluster. Ends early when all is over.
  void wait_for_all(Duration limit = std::chrono::seconds(300));
  // The same for those that train: the chief and the workers. At the warning those that are missing are named to the
  // log.
  void wait_for_workers(Patience patience = {});
  // Of those that train, who has no server any more; nothing: all have one, or do not say.
  std::optional<std::string> gone_worker() const;
  // Until somebody has called shut_down_all(). Throws Error peer_failed where the chief (worker 0 where there is none)
  // is gone without having done so.
  void join();
  // Tells all tasks that the cluster is over. Those that are gone need not hear it.
  void shut_down_all();

 private:
  struct PeerTask {
    Task task;
    std::string address;
  };
  std::string name_of(const PeerTask& other) const;
  std::string who_is_wrong(const PeerTask& other, const std::vector<std::string>& said) const;
  std::unique_ptr<rpc::Client> client_of(const PeerTask& other, Duration timeout, bool waits) const;
  void wait_for(std::vector<PeerTask> missing, Patience patience);
  std::vector<PeerTask> workers() const;
  std::string names_of_all(const std::vector<PeerTask>& some) const;
  std::vector<PeerTask> peers(bool with_evaluators) const;
  rpc::StatusOrResult<std::vector<std::string>> ask(rpc::Client& other) const;
  void refuse_stranger();
  [[noreturn]] void refuse_missing(const std::vector<PeerTask>& missing, Duration limit) const;
  bool is_over_within(Duration time);
  bool is_there(const PeerTask& other) const;

  ClusterSpec cluster_;
  Task me_;
  TaskServerOptions options_;
  std::mutex mutex_;
  std::condition_variable said_;
  bool over_ = false;
  std::string stranger_;  // who has asked, of another cluster
  bool started_ = false;
  bool knows_leader_ = false;  // it was there
  std::unique_ptr<rpc::RpcServer> rpc_;
};

}  // namespace lockstep
