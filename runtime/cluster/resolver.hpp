// SPDX-License-Identifier: Apache-2.0
// Where a process learns which cluster it is in and which task it is. One interface whatever the source: a variable,
// Slurm, the ranks of MPI, or the program itself.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cluster/cluster_spec.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

class Resolver {
 public:
  virtual ~Resolver() = default;

  virtual ClusterSpec cluster_spec() const = 0;
  // This process; nothing where it belongs to no cluster.
  virtual std::optional<Task> task() const = 0;
  virtual std::string rpc_layer() const { return {}; }    // "grpc", or empty
  virtual std::string environment() const { return {}; }  // where it runs, as the cluster's owner calls it
  // The address to talk to: this task's, or that of another; with the rpc layer before it. Empty where the cluster is
  // no more than this process.
  virtual std::string master(std::optional<Task> of = std::nullopt, std::string_view layer = {}) const;
  virtual std::string describe() const = 0;  // "TF_CONFIG", for people
  // Of this task, by type, as far as the source says it: {"GPU": 2}. What the machine has: physical_devices().
  virtual std::map<std::string, int> num_accelerators() const { return {}; }

  std::string task_type() const { return task() ? task()->type : std::string(); }
  int task_id() const { return task() ? task()->index : 0; }
};

// What the program knows better than the source.
struct TaskOverride {
  std::optional<std::string> type = std::nullopt;
  std::optional<int> index = std::nullopt;
  std::optional<std::string> rpc_layer = std::nullopt;
};

// A cluster that the program names itself.
class SimpleResolver : public Resolver {
 public:
  explicit SimpleResolver(ClusterSpec spec, std::optional<Task> task = std::nullopt, std::string rpc_layer = "grpc",
                          std::string environment = {}, std::map<std::string, int> num_accelerators = {});
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string rpc_layer() const override { return rpc_layer_; }
  std::string environment() const override { return environment_; }
  std::string describe() const override { return "the program"; }
  std::map<std::string, int> num_accelerators() const override { return num_accelerators_; }

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
  std::string rpc_layer_;
  std::string environment_;
  std::map<std::string, int> num_accelerators_;
};

// The variable TF_CONFIG, a JSON object with `cluster` and `task`; read once. Without it the cluster is empty.
class TfConfigResolver : public Resolver {
 public:
  explicit TfConfigResolver(const TaskOverride& mine = {}, const Environment& environment = process_environment);
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string rpc_layer() const override { return rpc_layer_; }
  std::string environment() const override { return environment_; }
  std::string master(std::optional<Task> of = std::nullopt, std::string_view layer = {}) const override;
  std::string describe() const override { return "TF_CONFIG"; }

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
  std::string rpc_layer_;
  std::string environment_;
  std::string session_master_;
};

struct SlurmOptions {
  std::map<std::string, int> jobs = {};  // how many tasks of each; nothing: all are workers
  int port_base = 8888;
  std::optional<int> tasks_per_node = std::nullopt;
  std::optional<int> gpus_per_node = std::nullopt;  // nothing: none are reckoned with
  std::optional<int> gpus_per_task = std::nullopt;  // nothing: an equal part of the node's
  std::string rpc_layer = "grpc";
};

// The variables of a Slurm job step: tasks fill one node after the other, and the jobs, by name, one another.
class SlurmResolver : public Resolver {
 public:
  explicit SlurmResolver(const SlurmOptions& options = {}, const Environment& environment = process_environment);
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string rpc_layer() const override { return rpc_layer_; }
  std::string describe() const override { return "Slurm"; }
  // Of this task, by number on its node: what CUDA_VISIBLE_DEVICES would say. It is not set: strategies take these.
  const std::vector<int>& gpus() const { return gpus_; }
  std::map<std::string, int> num_accelerators() const override;

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
  std::string rpc_layer_;
  std::vector<int> gpus_;
};

// "n[1-2],m5" is n1, n2, m5; "3(x2),1" is 3, 3, 1. An Error cluster where the words are not of that form.
std::vector<std::string> expand_hosts(std::string_view words);
std::vector<int> expand_tasks_per_node(std::string_view words);

// The members of an exchange, as workers by rank, with their hosts' names. All of them make it together.
class MpiResolver : public Resolver {
 public:
  explicit MpiResolver(Exchange& exchange);
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string describe() const override { return "MPI"; }

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
};

// TF_CONFIG where it names a cluster, else the exchange's members where there are several, else a Slurm step of several
// tasks, else nothing: one process. What was chosen and why is told to the log.
std::shared_ptr<Resolver> find_resolver(Exchange* exchange, const Log& log,
                                        const Environment& environment = process_environment);

}  // namespace lockstep
