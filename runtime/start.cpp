// SPDX-License-Identifier: Apache-2.0
// Decides how a program's processes find each other, and makes the session.
#include "runtime/start.hpp"

#include "runtime/task_session_backend.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/last_word.hpp"
#include "topology/machine/network.hpp"

namespace lockstep {
namespace {

bool launched_by_mpi() {
  const auto several = [](const char* name) {
    const char* value = process_environment(name);
    return value != nullptr && parse_integer(trim(value)).value_or(0) > 1;
  };
  return several("OMPI_COMM_WORLD_SIZE") || several("PMI_SIZE") || process_environment("PMIX_RANK") != nullptr;
}

// Tells how this process joins the others.
struct Launch {
  std::shared_ptr<SessionBackend> backend = nullptr;  // Null if MPI connects the processes, or there is only this one.
  std::optional<Role> role = std::nullopt;            // Empty if no cluster is named.
  std::optional<int> rank = std::nullopt;             // Is the rank that the cluster gives a task started by MPI.
};

std::shared_ptr<Resolver> resolver_of(const StartOptions& options) {
  return options.cluster_resolver ? options.cluster_resolver : std::make_shared<TfConfigResolver>();
}

// Returns the role and the rank of a task started by MPI, if the cluster names it. A wrong cluster is no error here,
// because only one rank would leave; MultiWorkerMirroredStrategy refuses it on all ranks.
Launch launch_of_rank(const StartOptions& options) {
  try {
    const std::shared_ptr<Resolver> resolver = resolver_of(options);
    const std::optional<Task> me = resolver->task();
    const ClusterSpec cluster = resolver->cluster_spec();
    if (!me || cluster.empty()) return {};
    const Role role = role_of(cluster, *me);
    return {.role = role, .rank = role.trains ? std::optional(id_in_cluster(cluster, *me)) : std::nullopt};
  } catch (const Error&) {
    return {};
  }
}

// Throws Error cluster if this task's host has no address. Warns of the other hosts, whose names may come later.
void check_hosts(const ClusterSpec& cluster, const Task& me, const Log& log) {
  for (const char* const job : {"chief", "worker"}) {
    if (!cluster.has(job)) continue;
    for (const auto& [index, address] : cluster.tasks(job)) {
      const std::string host = host_of(address);
      const HostAddresses found = addresses_of(host);
      if (!found.own.empty() || !found.others.empty()) continue;
      const std::string fact = text("the host '", printable(host), "' of ", job, ' ', index, " cannot be resolved");
      constexpr const char* remedy = "name the host by an address, or by a name that leads to one";
      if (Task{job, index} == me) throw Error(Code::cluster, fact, remedy);
      log.warn(text(fact, " yet -> ", remedy));
    }
  }
}

Launch launch_of(StartOptions& options) {
  if (launched_by_mpi()) return launch_of_rank(options);
  const Settings settings = options.session.settings ? *options.session.settings : Settings::from_environment();
  const Log log(settings.log_level(), options.session.log);
  const std::shared_ptr<Resolver> resolver = resolver_of(options);
  const ClusterSpec cluster = resolver->cluster_spec();
  if (cluster.empty()) return {};
  options.session.cluster_named = true;
  const std::optional<Task> me = resolver->task();
  check_roles(cluster, me);
  if (!me)
    throw Error(Code::cluster, text(resolver->describe(), " names a cluster, but not which task of it this is"),
                "give every process its own task: {\"type\": \"worker\", \"index\": 0}");
  const Role role = role_of(cluster, *me);
  if (!role.trains || worker_count(cluster, me->type) < 2) return {.role = role};
  check_ports(cluster);
  check_hosts(cluster, *me, log);
  return {make_task_session_backend(cluster, *me, resolver->describe(), settings, log), role};
}

// Adds the role. Without a cluster, and with one TF_CONFIG for several ranks, each rank is a worker.
TaskSession with_role(Session session, const Launch& launch) {
  const int rank = session.rank();
  const bool is_of_cluster = launch.role && launch.rank.value_or(rank) == rank;
  return {std::move(session), is_of_cluster ? *launch.role : Role{.index = rank, .saves = rank == 0}};
}

}  // namespace

TaskSession start(StartOptions options) {
  end_by_exit_codes();
  Launch launch = launch_of(options);
  if (!launch.backend) return with_role(Session(std::move(options.session)), launch);
  return with_role(Session(std::move(launch.backend), std::move(options.session)), launch);
}

TaskSession start(int& argc, char**& argv, StartOptions options) {
  end_by_exit_codes();
  Launch launch = launch_of(options);
  if (!launch.backend) return with_role({argc, argv, std::move(options.session)}, launch);
  return with_role(Session(std::move(launch.backend), std::move(options.session)), launch);
}

}  // namespace lockstep
