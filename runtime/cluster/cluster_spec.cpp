// SPDX-License-Identifier: Apache-2.0
// Checks cluster descriptions and the roles of tasks.
#include "runtime/cluster/cluster_spec.hpp"

#include <algorithm>
#include <array>
#include <ostream>

#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> roles = {"chief", "evaluator", "ps", "worker"};

// Numbers the addresses of each job from 0.
ClusterSpec::Jobs numbered(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs) {
  ClusterSpec::Jobs all;
  for (const auto& [name, addresses] : jobs) {
    const auto [job, is_new] = all.try_emplace(name);
    if (!is_new)
      throw Error(Code::cluster, text("the cluster has two jobs of the name '", printable(name), '\''),
                  "list all tasks of a job at one place");
    for (const std::string& address : addresses) job->second.emplace(static_cast<int>(job->second.size()), address);
  }
  return all;
}

// True for any word without blanks and control characters. gRPC judges the rest.
bool is_address(std::string_view words) {
  return !words.empty() && std::ranges::none_of(words, [](char letter) { return letter >= 0 && letter <= ' '; });
}

bool is_role(std::string_view type) { return std::ranges::find(roles, type) != roles.end(); }

std::string role_names() { return "chief, evaluator, ps, worker"; }

int count(const ClusterSpec& spec, std::string_view job) { return spec.has(job) ? spec.num_tasks(job) : 0; }

// Returns "its tasks are 0-3", for errors.
std::string indices_of(const ClusterSpec::Tasks& tasks) {
  IndexSet all;
  for (const auto& [index, address] : tasks) all.insert(index);
  return tasks.empty() ? "it has no tasks" : text("its tasks are ", all.to_string());
}

// Returns "it has chief, worker", for errors.
std::string names_of(const ClusterSpec& spec) {
  return spec.empty() ? "it has no jobs" : text("it has ", join(spec.job_names(), ", "));
}

// Refuses names that would spoil a terminal when they are printed.
void refuse_control_characters(std::string_view word, std::string_view what) {
  constexpr unsigned char first_printable = 0x20;
  constexpr unsigned char del = 0x7f;
  const auto is_control = [&](char each) {
    const auto byte = static_cast<unsigned char>(each);
    return byte < first_printable || byte == del;
  };
  if (std::ranges::any_of(word, is_control))
    throw Error(Code::cluster, text(what, " has control characters: '", printable(word), '\''), "leave them out");
}

}  // namespace

ClusterSpec::ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {
  for (const auto& [name, tasks] : jobs_) {
    refuse_control_characters(name, "the name of a job of the cluster");
    for (const auto& [index, address] : tasks) refuse_control_characters(address, "an address of the cluster");
    if (name.empty()) throw Error(Code::cluster, "a job of the cluster has no name", "name it, as 'worker'");
    for (const auto& [index, address] : tasks) {
      if (index < 0)
        throw Error(Code::cluster, text("job '", printable(name), "' has a task ", index), "tasks are numbered from 0");
      if (!is_address(address))
        throw Error(Code::cluster,
                    text("task ", index, " of job '", printable(name), "' has the address '", printable(address), '\''),
                    "give it as host:port");
    }
  }
}

ClusterSpec::ClusterSpec(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs)
    : ClusterSpec(numbered(jobs)) {}

std::vector<std::string> ClusterSpec::job_names() const {
  std::vector<std::string> all;
  for (const auto& [name, tasks] : jobs_) all.push_back(name);
  return all;
}

int ClusterSpec::num_tasks() const {
  std::size_t all = 0;
  for (const auto& [name, tasks] : jobs_) all += tasks.size();
  return static_cast<int>(all);
}

const ClusterSpec::Tasks& ClusterSpec::tasks(std::string_view job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    throw Error(Code::cluster, text("no such job in the cluster: '", printable(job), '\''), names_of(*this));
  return found->second;
}

std::vector<int> ClusterSpec::task_indices(std::string_view job) const {
  std::vector<int> all;
  for (const auto& [index, address] : tasks(job)) all.push_back(index);
  return all;
}

const std::string& ClusterSpec::task_address(std::string_view job, int index) const {
  const Tasks& all = tasks(job);
  const auto found = all.find(index);
  if (found == all.end())
    throw Error(Code::cluster, text("no task with index ", index, " in job '", printable(job), '\''), indices_of(all));
  return found->second;
}

// Writes a job as a list if its tasks are numbered without gaps, and otherwise as a map, as TensorFlow does.
std::string to_string(const ClusterSpec& spec) {
  std::string all = "ClusterSpec({";
  std::string_view between_jobs;
  for (const auto& [name, tasks] : spec.jobs()) {
    const bool dense = tasks.empty() || tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
    all += text(between_jobs, '\'', name, "': ", dense ? '[' : '{');
    std::string_view between;
    for (const auto& [index, address] : tasks) {
      all += between;
      if (!dense) all += text(index, ": ");
      all += text('\'', address, '\'');
      between = ", ";
    }
    all += dense ? ']' : '}';
    between_jobs = ", ";
  }
  return all + "})";
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec) { return out << to_string(spec); }

// Follows the rules of TensorFlow's cluster utilities: at most one chief and one evaluator, and only known types. The
// evaluator need not be in the cluster.
void check_roles(const ClusterSpec& spec, const std::optional<Task>& task) {
  for (const std::string& name : spec.job_names()) {
    if (!is_role(name))
      throw Error(Code::cluster, text("disallowed task type '", printable(name), "' in ", to_string(spec)),
                  text("the types are ", role_names()));
  }
  for (const std::string_view single : {"chief", "evaluator"}) {
    if (count(spec, single) > 1)
      throw Error(Code::cluster,
                  text("there must be at most one '", single, "' job, and ", to_string(spec), " has ",
                       count(spec, single), " tasks of it"),
                  "make the others workers");
  }
  if (!task) return;
  if (!is_role(task->type))
    throw Error(Code::cluster, text("unrecognized task type '", printable(task->type), '\''),
                text("the types are ", role_names()));
  if (!spec.has(task->type)) {
    if (task->type == "evaluator") return;
    throw Error(Code::cluster, text("the task type '", task->type, "' is not in ", to_string(spec)),
                "name this process's own job in the cluster");
  }
  if (task->index < 0 || !spec.tasks(task->type).contains(task->index))
    throw Error(Code::cluster,
                text("the task id ", task->index, " is none of ", task->type, ", or exceeds its maximum id"),
                indices_of(spec.tasks(task->type)));
}

bool is_chief(const ClusterSpec& spec, const Task& task) {
  check_roles(spec, task);
  if (task.type == "chief" || task.type == "evaluator") return true;
  return task.type == "worker" && task.index == 0 && !spec.has("chief");
}

int worker_count(const ClusterSpec& spec, std::string_view type) {
  check_roles(spec, std::nullopt);
  if (type == "evaluator") return std::max(1, count(spec, "evaluator"));
  if (type != "chief" && type != "worker")
    throw Error(Code::cluster, text("a task of type '", printable(type), "' does not train with workers"),
                "ask for a chief, worker or evaluator");
  if (!spec.has(type))
    throw Error(Code::cluster, text("the task type '", type, "' is not in ", to_string(spec)), names_of(spec));
  return count(spec, "chief") + count(spec, "worker");
}

int id_in_cluster(const ClusterSpec& spec, const Task& task) {
  check_roles(spec, task);
  if (task.type == "chief") return 0;
  if (task.type == "worker") return task.index + count(spec, "chief");
  if (task.type == "evaluator") return task.index;
  throw Error(Code::cluster, text("there is no id for task type '", task.type, '\''),
              "a chief, worker or evaluator has one");
}

Role role_of(const ClusterSpec& spec, const Task& task) {
  check_roles(spec, task);
  const bool trains = task.type == "chief" || task.type == "worker";
  return {.type = task.type,
          .index = task.index,
          .trains = trains,
          .saves = trains && is_chief(spec, task),
          .serves = task.type == "ps",
          .evaluates = task.type == "evaluator"};
}

void check_ports(const ClusterSpec& spec) {
  constexpr int last_port = 65535;
  for (const auto& [job, tasks] : spec.jobs()) {
    for (const auto& [index, address] : tasks) {
      const std::size_t colon = address.rfind(':');
      const std::string port = colon == std::string::npos ? std::string() : address.substr(colon + 1);
      const std::int64_t number = parse_integer(port).value_or(0);
      if (number >= 1 && number <= last_port) continue;
      throw Error(Code::cluster,
                  text(job, ' ', index, " has the address '", printable(address), "', ",
                       port.empty() ? std::string("which has no port")
                                    : text("whose port '", printable(port), "' is no number from 1 to ", last_port)),
                  "give it a host and a free port of that host, as in host1:12345");
    }
  }
}

std::string host_of(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::string(host);
}

}  // namespace lockstep
