// SPDX-License-Identifier: Apache-2.0
// Describes a cluster: jobs by name ("worker", "ps"), their tasks by index, and an address for each task. It also
// tells the duties of each task type. Every task has an equal description.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Identifies one process of the cluster.
struct Task {
  std::string type;
  int index = 0;
  bool operator==(const Task&) const = default;
};

// Is a value: it can be copied, compared and printed.
class ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;  // Maps indices to addresses; indices may have gaps.
  using Jobs = std::map<std::string, Tasks, std::less<>>;

  // Makes an empty cluster.
  ClusterSpec() = default;
  explicit ClusterSpec(Jobs jobs);
  // Numbers the tasks of each job from 0, as in {{"worker", {"host1:12345", "host2:23456"}}, {"ps", {"host3:34567"}}}.
  ClusterSpec(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs);

  // True if there are no jobs, or if there is a job of that name.
  bool empty() const { return jobs_.empty(); }
  bool has(std::string_view job) const { return jobs_.contains(job); }
  // Returns all jobs with their tasks.
  const Jobs& jobs() const { return jobs_; }
  std::vector<std::string> job_names() const;  // Returns the sorted names.
  int num_tasks() const;                       // Returns the number of tasks of all jobs.
  // Describe one job. They throw Error cluster if there is no job of that name, or no such task.
  int num_tasks(std::string_view job) const { return static_cast<int>(tasks(job).size()); }
  std::vector<int> task_indices(std::string_view job) const;
  const std::string& task_address(std::string_view job, int index) const;
  const Tasks& tasks(std::string_view job) const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  Jobs jobs_;
};

// Returns "ClusterSpec({'ps': ['host3:34567'], 'worker': ['host1:12345', 'host2:23456']})".
std::string to_string(const ClusterSpec& spec);
std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec);

// Throws Error cluster unless a strategy can use the cluster and the task. Job names must be chief, worker, ps and
// evaluator, with at most one chief and one evaluator. The task must belong to the cluster, unless it is an evaluator.
void check_roles(const ClusterSpec& spec, const std::optional<Task>& task);

// True for the task that saves, logs and leads: the chief, or worker 0 without a chief. An evaluator is its own chief.
bool is_chief(const ClusterSpec& spec, const Task& task);
// Returns the number of tasks that train together with a task of this type: chief and workers. An evaluator counts
// alone.
int worker_count(const ClusterSpec& spec, std::string_view type);
// Returns the position of the task among those that train: the chief first, then the workers.
int id_in_cluster(const ClusterSpec& spec, const Task& task);

// Holds the duties of a process.
struct Role {
  std::string type = "worker";  // chief, worker, ps or evaluator
  int index = 0;
  bool trains = true;      // It takes part in the steps.
  bool saves = true;       // It writes checkpoints and logs: the chief, or worker 0 without a chief.
  bool serves = false;     // It keeps variables for others.
  bool evaluates = false;  // It reads checkpoints beside the training.
};
// Returns the duties of a task. Throws as check_roles() does.
Role role_of(const ClusterSpec& spec, const Task& task);

// Throws Error cluster if an address has no port, or a port that is no number from 1 to 65535.
void check_ports(const ClusterSpec& spec);
// Returns "host1" of "host1:12345", and "::1" of "[::1]:12345".
std::string host_of(std::string_view address);

}  // namespace lockstep
