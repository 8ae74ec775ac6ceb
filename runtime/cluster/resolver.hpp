// SPDX-License-Identifier: Apache-2.0
// Finds the cluster and the task of a process. All sources share one interface: a variable, Slurm, the ranks of MPI,
// or the program.
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

// Is the interface of all sources. Strategies share ownership of it.
class Resolver {
 public:
  virtual ~Resolver() = default;

  // Returns all jobs and tasks of the cluster.
  virtual ClusterSpec cluster_spec() const = 0;
  // Returns this process's task, or nothing if it belongs to no cluster.
  virtual std::optional<Task> task() const = 0;
  virtual std::string rpc_layer() const { return {}; }    // Returns "grpc", or an empty string.
  virtual std::string environment() const { return {}; }  // Returns the cluster owner's name for the environment.
  // Returns the address of this task or of another, with the rpc layer before it. Returns an empty string if the
  // cluster is only this process.
  virtual std::string master(std::optional<Task> of = std::nullopt, std::string_view layer = {}) const;
  virtual std::string describe() const = 0;  // Returns the name of the source for people: "TF_CONFIG".
  // Returns the number of this task's accelerators by type: {"GPU": 2}. By default these are the GPUs that this process
  // sees.
  virtual std::map<std::string, int> num_accelerators() const;

  // Returns an empty string without a task.
  std::string task_type() const { return task() ? task()->type : std::string(); }
  int task_id() const { return task() ? task()->index : 0; }
};

// Holds values of the program that override those of the source.
struct TaskOverride {
  std::optional<std::string> type = std::nullopt;
  std::optional<int> index = std::nullopt;
  std::optional<std::string> rpc_layer = std::nullopt;
};

// Returns a cluster that the program gives.
class SimpleResolver : public Resolver {
 public:
  // Describes a cluster that the program gives.
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

// Reads the variable TF_CONFIG once: a JSON object with `cluster` and `task`. Without it the cluster is empty.
class TfConfigResolver : public Resolver {
 public:
  // Reads TF_CONFIG. The fields of `mine` that are set replace those of its task. Throws Error cluster if it is not
  // understood.
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

// Tells how a Slurm step becomes a cluster.
struct SlurmOptions {
  std::map<std::string, int> jobs = {};  // Holds the number of tasks of each job. Empty makes all tasks workers.
  // Is the port of a node's first task; the others count up.
  int port_base = 8888;
  std::optional<int> tasks_per_node = std::nullopt;
  std::optional<int> gpus_per_node = std::nullopt;  // Zero GPUs are assumed by default.
  std::optional<int> gpus_per_task = std::nullopt;  // Defaults to an equal share of the node's GPUs.
  std::string rpc_layer = "grpc";
};

// Reads the variables of a Slurm job step. Tasks fill one node after the other, and jobs follow each other by name.
class SlurmResolver : public Resolver {
 public:
  // Reads the variables of Slurm's step. Throws Error cluster if they do not fit the options.
  explicit SlurmResolver(const SlurmOptions& options = {}, const Environment& environment = process_environment);
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string rpc_layer() const override { return rpc_layer_; }
  std::string describe() const override { return "Slurm"; }
  // Returns this task's GPUs by number on its node, as CUDA_VISIBLE_DEVICES lists them. It does not set the variable;
  // strategies use the list.
  const std::vector<int>& gpus() const { return gpus_; }
  std::map<std::string, int> num_accelerators() const override;

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
  std::string rpc_layer_;
  std::vector<int> gpus_;
};

// Expand Slurm's lists: "n[1-2],m5" is n1, n2, m5; "3(x2),1" is 3, 3, 1. They throw Error cluster for another form.
std::vector<std::string> expand_hosts(std::string_view words);
std::vector<int> expand_tasks_per_node(std::string_view words);

// Describes the members of an exchange as workers by rank, with their host names. All members make it together.
class MpiResolver : public Resolver {
 public:
  // Makes every rank of the exchange a worker. All ranks make one together.
  explicit MpiResolver(Exchange& exchange);
  ClusterSpec cluster_spec() const override { return spec_; }
  std::optional<Task> task() const override { return task_; }
  std::string describe() const override { return "MPI"; }

 private:
  ClusterSpec spec_;
  std::optional<Task> task_;
};

// Returns the first source that fits. TF_CONFIG comes first if it names a cluster, then an exchange of several
// members, then a Slurm step of several tasks. Returns null for a single process. Logs the choice and the reason.
// `exchange` may be null.
std::shared_ptr<Resolver> find_resolver(Exchange* exchange, const Log& log,
                                        const Environment& environment = process_environment);

}  // namespace lockstep
