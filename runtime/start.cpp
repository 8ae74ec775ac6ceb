// SPDX-License-Identifier: Apache-2.0
// Decides how a program's processes find each other, and makes the session.
#include "runtime/start.hpp"

#include "runtime/task_session_backend.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/last_word.hpp"

namespace lockstep {
namespace {

bool launched_by_mpi() {
  const auto several = [](const char* name) {
    const char* value = process_environment(name);
    return value != nullptr && parse_integer(trim(value)).value_or(0) > 1;
  };
  return several("OMPI_COMM_WORLD_SIZE") || several("PMI_SIZE") || process_environment("PMIX_RANK") != nullptr;
}

// Returns null if this process is alone, or if MPI knows the other processes.
std::shared_ptr<SessionBackend> backend_for(StartOptions& options) {
  if (launched_by_mpi()) return nullptr;
  const Settings settings = options.session.settings ? *options.session.settings : Settings::from_environment();
  const Log log(settings.log_level(), options.session.log);
  const std::shared_ptr<Resolver> resolver =
      options.cluster_resolver ? options.cluster_resolver : std::make_shared<TfConfigResolver>();
  const ClusterSpec cluster = resolver->cluster_spec();
  if (cluster.empty()) return nullptr;
  options.session.cluster_named = true;
  const std::optional<Task> me = resolver->task();
  check_roles(cluster, me);
  if (!me)
    throw Error(Code::cluster, text(resolver->describe(), " names a cluster, but not which task of it this is"),
                "give every process its own task: {\"type\": \"worker\", \"index\": 0}");
  if (me->type != "chief" && me->type != "worker")
    throw Error(Code::cluster,
                text("this is ", me->type, ' ', me->index, ", and only chief and workers train together"),
                "let it make a lockstep::Server instead");
  if (worker_count(cluster, me->type) < 2) return nullptr;
  return make_task_session_backend(cluster, *me, resolver->describe(), settings, log);
}

}  // namespace

Session start(StartOptions options) {
  end_by_exit_codes();
  if (auto backend = backend_for(options)) return Session(std::move(backend), std::move(options.session));
  return Session(std::move(options.session));
}

Session start(int& argc, char**& argv, StartOptions options) {
  end_by_exit_codes();
  if (auto backend = backend_for(options)) return Session(std::move(backend), std::move(options.session));
  return {argc, argv, std::move(options.session)};
}

}  // namespace lockstep
