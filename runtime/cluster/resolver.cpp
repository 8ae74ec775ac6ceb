// SPDX-License-Identifier: Apache-2.0
// Finds the source of a process's cluster.
#include "runtime/cluster/resolver.hpp"

#include <unistd.h>

#include <array>

#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

std::string with_layer(std::string_view layer, const std::string& address) {
  return layer.empty() ? address : text(layer, "://", address);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// Checks that all ranks agree about TF_CONFIG. Launchers may hand a variable to some hosts only, and the ranks would
// then take different ways.
void check_all_alike(Exchange& exchange, bool named, const std::string& wrong) {
  IndexSet with;
  IndexSet without;
  std::string others;
  const std::string mine = text(named ? '+' : '-', wrong);
  int rank = 0;
  for (const Bytes& each : exchange.all_gather("whether TF_CONFIG names a cluster", to_bytes(mine))) {
    const std::string said = to_string(each);
    if (said.size() > 1 && others.empty() && rank != exchange.rank())
      others = text("on rank ", rank, ": ", said.substr(1));
    (said.front() == '+' ? with : without).insert(rank++);
  }
  if (!wrong.empty()) return;  // The caller throws this rank's own error, which says more.
  if (!others.empty()) throw Error(Code::cluster, others);
  if (!with.empty() && !without.empty())
    throw Error(Code::cluster,
                text("TF_CONFIG names a cluster on rank ", with.to_string(), " and none on rank ", without.to_string()),
                "set it for all ranks (mpirun -x TF_CONFIG ...), or for none");
}

}  // namespace

std::string Resolver::master(std::optional<Task> of, std::string_view layer) const {
  if (!of) of = task();
  const ClusterSpec spec = cluster_spec();
  if (!of || spec.empty()) return {};
  return with_layer(layer.empty() ? rpc_layer() : layer, spec.task_address(of->type, of->index));
}

std::map<std::string, int> Resolver::num_accelerators() const {
  const gpu::DeviceBackend* const visible = gpu::backend();
  const int gpus = visible == nullptr ? 0 : static_cast<int>(visible->devices());
  return gpus == 0 ? std::map<std::string, int>() : std::map<std::string, int>{{"GPU", gpus}};
}

SimpleResolver::SimpleResolver(ClusterSpec spec, std::optional<Task> task, std::string rpc_layer,
                               std::string environment, std::map<std::string, int> num_accelerators)
    : spec_(std::move(spec)),
      task_(std::move(task)),
      rpc_layer_(std::move(rpc_layer)),
      environment_(std::move(environment)),
      num_accelerators_(std::move(num_accelerators)) {
  if (task_) spec_.task_address(task_->type, task_->index);
}

MpiResolver::MpiResolver(Exchange& exchange) : task_(Task{"worker", exchange.rank()}) {
  ClusterSpec::Tasks workers;
  for (const Bytes& host : exchange.all_gather("names of hosts", to_bytes(host_name())))
    workers.emplace(static_cast<int>(workers.size()), to_string(host));
  spec_ = ClusterSpec(ClusterSpec::Jobs{{"worker", std::move(workers)}});
}

std::shared_ptr<Resolver> find_resolver(Exchange* exchange, const Log& log, const Environment& environment) {
  const auto chosen = [&](std::shared_ptr<Resolver> resolver, std::string_view why) {
    log.info(
        text("the cluster is that of ", resolver->describe(), " (", why, "): ", to_string(resolver->cluster_spec())));
    return resolver;
  };
  std::shared_ptr<Resolver> named;
  std::string wrong;
  try {
    if (auto found = std::make_shared<TfConfigResolver>(TaskOverride{}, environment); !found->cluster_spec().empty())
      named = std::move(found);
  } catch (const Error& error) {
    wrong = error.detail();
  }
  if (exchange != nullptr) check_all_alike(*exchange, named != nullptr, wrong);
  if (!wrong.empty()) throw Error(Code::cluster, wrong);
  if (named) return chosen(std::move(named), "names a cluster");
  // MPI ranks are connected already, so they don't need the addresses from Slurm.
  if (exchange != nullptr && exchange->size() > 1)
    return chosen(std::make_shared<MpiResolver>(*exchange), text(exchange->size(), " ranks"));
  const char* tasks = environment("SLURM_STEP_NUM_TASKS");
  if (tasks != nullptr && environment("SLURM_STEP_NODELIST") != nullptr && parse_integer(trim(tasks)).value_or(0) > 1)
    return chosen(std::make_shared<SlurmResolver>(SlurmOptions{}, environment), text("a step of ", tasks, " tasks"));
  log.info("there is no cluster: no TF_CONFIG, one rank, no step of Slurm with several tasks");
  return nullptr;
}

}  // namespace lockstep
