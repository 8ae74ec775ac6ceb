// SPDX-License-Identifier: Apache-2.0
// Reads a cluster from the variables of a Slurm job step.
#include <algorithm>
#include <numeric>

#include "runtime/cluster/resolver.hpp"
#include "topology/base/error.hpp"
#include "topology/base/hosts.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t most = most_hosts;  // Limits the tasks as well.

// Returns the variable of the job step, or else that of the job.
std::string variable(const Environment& environment, const std::string& name) {
  for (const std::string& full : {text("SLURM_STEP_", name), text("SLURM_", name)}) {
    if (const char* value = environment(full.c_str()); value != nullptr && !trim(value).empty())
      return std::string(trim(value));
  }
  throw Error(Code::cluster, text("SLURM_STEP_", name, " is not set"),
              "start the program by srun, or name the cluster in TF_CONFIG");
}

// Parses a number of Slurm's. Throws Error cluster if it is below `least` or above the limit.
int number(const std::string& name, const std::string& value, std::int64_t least) {
  const auto parsed = parse_integer(value);
  if (!parsed || *parsed < least || *parsed > most)
    throw Error(Code::cluster, text("SLURM's ", name, " is '", printable(value), '\''),
                "start the program by srun, or name the cluster in TF_CONFIG");
  return static_cast<int>(*parsed);
}

// Is the place of one task: its host, and its number on that host.
struct Slot {
  std::string host;
  int place = 0;  // Counts the tasks of its node.
};

// Returns the places of all tasks, node by node, as Slurm numbers them.
std::vector<Slot> slots_of(const std::vector<std::string>& hosts, const std::vector<int>& tasks) {
  if (tasks.size() != hosts.size())
    throw Error(Code::cluster, text("Slurm names ", hosts.size(), " hosts, and how many tasks run on ", tasks.size()),
                "give tasks_per_node");
  if (std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0}) > most)
    throw Error(Code::cluster, text("Slurm's step has more than ", most, " tasks"), "give tasks_per_node");
  std::vector<Slot> all;
  for (std::size_t node = 0; node < hosts.size(); ++node) {
    for (int place = 0; place < tasks[node]; ++place) all.push_back({hosts[node], place});
  }
  return all;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view words) {
  auto hosts = parse_hosts(words);
  if (!hosts)
    throw Error(Code::cluster, text('\'', printable(words), "' is not a list of hosts"),
                "Slurm writes them as n[1-3,7],m5");
  return *std::move(hosts);
}

std::vector<int> expand_tasks_per_node(std::string_view words) {
  std::vector<int> all;
  const auto refuse = [&] {
    throw Error(Code::cluster, text('\'', printable(words), "' does not say how many tasks each node has"),
                "Slurm writes it as 2(x3),1");
  };
  for (const std::string& part : split(words, ',')) {
    const auto open = part.find("(x");
    const auto tasks = parse_integer(part.substr(0, open));
    std::optional<std::int64_t> times = 1;
    if (open != std::string::npos)
      times = part.ends_with(')') ? parse_integer(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    if (!tasks || !times || *tasks < 1 || *tasks > most || *times < 1 || *times > most) refuse();
    all.insert(all.end(), static_cast<std::size_t>(*times), static_cast<int>(*tasks));
    if (all.size() > static_cast<std::size_t>(most)) refuse();
  }
  return all;
}

// Deals the tasks out to the jobs in the order of the jobs' names. Ports count up on each node, and so do its GPUs.
SlurmResolver::SlurmResolver(const SlurmOptions& options, const Environment& environment)
    : rpc_layer_(options.rpc_layer) {
  const int rank = number("PROCID", variable(environment, "PROCID"), 0);
  const int size = number("NUM_TASKS", variable(environment, "NUM_TASKS"), 1);
  const std::vector<std::string> hosts = expand_hosts(variable(environment, "NODELIST"));
  if (options.tasks_per_node.value_or(1) < 1)
    throw Error(Code::cluster, text(*options.tasks_per_node, " tasks per node"), "there is at least one");
  const std::vector<int> tasks = options.tasks_per_node
                                     ? std::vector<int>(hosts.size(), *options.tasks_per_node)
                                     : expand_tasks_per_node(variable(environment, "TASKS_PER_NODE"));
  const std::vector<Slot> slots = slots_of(hosts, tasks);
  const std::map<std::string, int> jobs =
      options.jobs.empty() ? std::map<std::string, int>{{"worker", static_cast<int>(slots.size())}} : options.jobs;
  int asked = 0;
  for (const auto& [name, count] : jobs) {
    if (count < 1) throw Error(Code::cluster, text("job '", printable(name), "' of ", count, " tasks"), "leave it out");
    asked += count;
  }
  if (asked != static_cast<int>(slots.size()) || asked != size || rank >= size)
    throw Error(Code::cluster,
                text("jobs of ", asked, " tasks were asked for; Slurm's step has ", size, " tasks, ", slots.size(),
                     " by its nodes, and this is number ", rank),
                "let the jobs' tasks add up to those of the step");
  const int most_per_node = *std::ranges::max_element(tasks);
  constexpr int last_port = 65535;
  if (options.port_base < 1 || options.port_base + most_per_node - 1 > last_port)
    throw Error(Code::cluster, text("port_base ", options.port_base, " with ", most_per_node, " tasks on a node"),
                text("ports are 1 to ", last_port));
  const int gpus_per_task = options.gpus_per_task.value_or(options.gpus_per_node.value_or(0) / most_per_node);
  if (most_per_node * gpus_per_task > options.gpus_per_node.value_or(gpus_per_task * most_per_node))
    throw Error(Code::cluster,
                text("requested more GPUs per node than available: ", most_per_node, " tasks with ", gpus_per_task,
                     " each, of ", *options.gpus_per_node),
                "start fewer tasks on a node, or give each fewer GPUs");
  ClusterSpec::Jobs all;
  std::size_t next = 0;
  for (const auto& [name, count] : jobs) {
    for (int index = 0; index < count; ++index, ++next) {
      if (static_cast<int>(next) == rank) task_ = Task{name, index};
      all[name].emplace(index, text(slots[next].host, ':', options.port_base + slots[next].place));
    }
  }
  spec_ = ClusterSpec(std::move(all));
  for (int i = 0; i < gpus_per_task; ++i)
    gpus_.push_back(slots[static_cast<std::size_t>(rank)].place * gpus_per_task + i);
}

std::map<std::string, int> SlurmResolver::num_accelerators() const {
  if (gpus_.empty()) return {};
  return {{"GPU", static_cast<int>(gpus_.size())}};
}

}  // namespace lockstep
