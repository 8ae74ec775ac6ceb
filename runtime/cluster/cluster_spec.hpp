// SPDX-License-Identifier: Apache-2.0
// Who is in a cluster: jobs by name ("worker", "ps"), tasks of a job by index, each with an address; and what a task's
// type says of its duties. A value: printable, comparable, the same on every task.
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

// One process of the cluster.
struct Task {
  std::string type;
  int index = 0;
  bool operator==(const Task&) const = default;
};

class ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;  // addresses by index, which may have gaps
  using Jobs = std::map<std::string, Tasks, std::less<>>;

  ClusterSpec() = default;
  explicit ClusterSpec(Jobs jobs);
  // {{"worker", {"host1:12345", "host2:23456"}}, {"ps", {"host3:34567"}}}
  ClusterSpec(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs);

  bool empty() const { return jobs_.empty(); }
  bool has(std::string_view job) const { return jobs_.contains(job); }
  const Jobs& jobs() const { return jobs_; }
  std::vector<std::string> job_names() const;  // sorted
  int num_tasks() const;                       // of all jobs
  // Of one job; an Error cluster where there is none of that name, or no such task.
  int num_tasks(std::string_view job) const { return static_cast<int>(tasks(job).size()); }
  std::vector<int> task_indices(std::string_view job) const;
  const std::string& task_address(std::string_view job, int index) const;
  const Tasks& tasks(std::string_view job) const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  Jobs jobs_;
};

// ClusterSpec({'ps': ['host3:34567'], 'worker': ['host1:12345', 'host2:23456']})
std::string to_string(const ClusterSpec& spec);
std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec);

// What strategies ask of a cluster and of the task that they run in: types are chief, worker, ps and evaluator, with at
// most one chief and one evaluator, and the task is one of the cluster's (an evaluator need not be). Else an Error
// cluster.
void check_roles(const ClusterSpec& spec, const std::optional<Task>& task);

// The one that saves, logs and leads: the chief, or worker 0 where there is none; an evaluator is its own.
bool is_chief(const ClusterSpec& spec, const Task& task);
// How many train together with a task of this type: chief and workers; an evaluator counts by itself.
int worker_count(const ClusterSpec& spec, std::string_view type);
// The task's place among them: the chief first, then the workers.
int id_in_cluster(const ClusterSpec& spec, const Task& task);

}  // namespace lockstep
