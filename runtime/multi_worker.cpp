// SPDX-License-Identifier: Apache-2.0
// Implements the strategy of several processes: its replicas are ranks, or threads of ranks.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "collectives/communicator/communicator.hpp"
#include "runtime/cluster/resolver.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/start.hpp"
#include "runtime/strategy_state.hpp"

namespace lockstep {
namespace {

// Returns a part of the machine for each thread of this rank. Processes bound to the same processors divide them.
std::vector<detail::ReplicaPlacement> placements_beside_others(const Session& session,
                                                               const std::vector<int>& numbers) {
  const Topology& topology = session.topology();
  const Member& me = topology.member(session.rank());
  int before = 0;
  int all = 0;
  for (int rank = 0; rank < session.size(); ++rank) {
    const Member& other = topology.member(rank);
    if (other.node != me.node || topology.place_of(rank).pus != topology.place_of(session.rank()).pus) continue;
    const int theirs = numbers[static_cast<std::size_t>(rank)];
    before += rank < session.rank() ? theirs : 0;
    all += theirs;
  }
  std::vector<detail::ReplicaPlacement> placements = detail::placements_for(all);
  const auto mine = static_cast<std::ptrdiff_t>(numbers[static_cast<std::size_t>(session.rank())]);
  placements = {placements.begin() + before, placements.begin() + before + mine};
  for (int local = 0; local < static_cast<int>(placements.size()); ++local)
    placements[static_cast<std::size_t>(local)].device.index = local;
  return placements;
}

// Runs `body`. An exception ends the other members' wait in the exchanges.
template <class Exchanges, class F>
auto telling_the_others(const Exchanges& exchanges, const F& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    for (Exchange* const each : exchanges) each->fail(error.what());
    throw;
  }
}

// Holds the places of a rank's replicas, or the error to tell all ranks.
struct RequestedPlacements {
  std::vector<detail::ReplicaPlacement> placements = {};
  std::string wrong = {};
};

RequestedPlacements requested_placements(const std::vector<std::string>* devices) {
  try {
    return devices == nullptr ? RequestedPlacements() : RequestedPlacements{detail::placements_for(*devices)};
  } catch (const Error& error) {
    return {.wrong = std::string(error.detail())};
  }
}

// Returns the numbers of replicas of all ranks. An error of one rank is thrown on all.
std::vector<int> replicas_of_all(Session& session, int mine, const std::string& wrong, int most, bool gives_resolver,
                                 bool wants_leader) {
  std::vector<int> all;
  const Bytes words =
      Writer().put(mine).put(std::uint8_t{gives_resolver}).put(std::uint8_t{wants_leader}).put(wrong).take();
  std::string all_wrong;
  for (const Bytes& each : session.exchange().all_gather("replicas of each rank", words)) {
    Reader reader(each);
    all.push_back(reader.get<int>());
    if ((reader.get<std::uint8_t>() != 0) != gives_resolver)
      throw Error(Code::usage, "some ranks give a MultiWorkerMirroredStrategy a cluster_resolver, and some do not",
                  "give one on all ranks, or on none");
    if ((reader.get<std::uint8_t>() != 0) != wants_leader)
      throw Error(Code::usage, "some ranks give a MultiWorkerMirroredStrategy other cross_device_ops than the rest",
                  "give the same on all ranks");
    if (const std::string theirs = reader.get_string(); !theirs.empty() && all_wrong.empty())
      all_wrong = text("rank ", all.size() - 1, ": ", theirs);
  }
  if (!all_wrong.empty())
    throw Error(Code::usage, all_wrong, "name devices that the rank sees: physical_devices(\"gpu\") lists them");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] < 1 || all[rank] > most)
      throw Error(Code::usage, text("a MultiWorkerMirroredStrategy with ", all[rank], " replicas on rank ", rank),
                  text("there can be 1 to ", most, " on each"));
  }
  return all;
}

// Holds a rank's view of its cluster.
struct ClusterReport {
  std::string wrong;
  std::string cluster;
  Task task;
  int place = 0;  // Counts the tasks that train.
};

ClusterReport cluster_report(const Resolver& resolver) {
  ClusterReport report;
  try {
    const ClusterSpec spec = resolver.cluster_spec();
    report.cluster = to_string(spec);
    const std::optional<Task> task = resolver.task();
    check_roles(spec, task);
    if (!task) throw Error(Code::cluster, "it does not say which task this is");
    report.task = *task;
    if (task->type != "chief" && task->type != "worker")
      throw Error(Code::cluster, text("this is ", task->type, ' ', task->index, ", and only chief and workers train"));
    report.place = id_in_cluster(spec, *task);
  } catch (const Error& error) {
    report.wrong = error.detail();
  } catch (const std::exception& error) {
    report.wrong = error.what();
  }
  return report;
}

// Checks that the ranks, in the order of tasks, are the chief and the workers of one cluster. Throws the same error on
// all ranks.
void check_cluster(Session& session, const Resolver& resolver) {
  const ClusterReport mine = cluster_report(resolver);
  const Bytes bytes =
      Writer().put(mine.wrong).put(mine.cluster).put(mine.task.type).put(mine.task.index).put(mine.place).take();
  std::string first;
  int rank = 0;
  const auto refuse = [&](const std::string& what) {
    throw Error(
        Code::cluster, text("rank ", rank, " (its cluster is from ", resolver.describe(), "): ", what),
        "begin with lockstep::start() in each process of the cluster, or start its chief and workers by mpirun, one "
        "rank for each, in their order");
  };
  for (const Bytes& each : session.exchange().all_gather("the cluster of each rank", bytes)) {
    Reader reader(each);
    const std::string wrong = reader.get_string();
    const std::string cluster = reader.get_string();
    const std::string type = reader.get_string();
    const int index = reader.get<int>();
    const int place = reader.get<int>();
    if (!wrong.empty()) refuse(wrong);
    if (rank == 0) first = cluster;
    if (cluster != first) refuse(text("it is ", cluster, ", and rank 0 has ", first));
    if (place != rank) refuse(text("it is ", type, ' ', index, ", number ", place, " of those that train"));
    ++rank;
  }
  const int trained = worker_count(resolver.cluster_spec(), mine.task.type);
  rank = 0;
  if (trained != session.size())
    refuse(text(trained, " tasks of ", first, " train, and there are ", session.size(),
                session.size() == 1 ? " rank" : " ranks"));
  if (resolver.cluster_spec().has("ps") && session.rank() == 0)
    session.log().info("the cluster's ps tasks have no part in a MultiWorkerMirroredStrategy");
}

std::shared_ptr<Resolver> cluster_of(Session& session, const std::shared_ptr<Resolver>& given) {
  const std::shared_ptr<Resolver> resolver = given ? given : find_resolver(&session.exchange(), session.log());
  if (given || dynamic_cast<TfConfigResolver*>(resolver.get()) != nullptr) check_cluster(session, *resolver);
  return session.size() == 1 && !given ? nullptr : resolver;
}

// Is the least size of a sum that travels while replicas compute: a guess, a message of 2 ms at 1 Gbit/s.
constexpr std::size_t min_progress_bytes = std::size_t{1} << 18U;

// Tells whether sums travel while replicas compute. Between processors of one node a thread would take their time.
bool needs_progress_thread(const Session& session, const std::vector<std::string>* devices,
                           const StrategyOptions& options) {
  const bool may_have_thread = session.thread_level() >= ThreadLevel::serialized;
  if (options.progress_thread.value_or(false) && !may_have_thread)
    throw Error(Code::thread_level,
                text("a progress thread, but MPI was not started for several threads (here: ",
                     to_string(session.thread_level()), ")"),
                "start MPI with MPI_THREAD_SERIALIZED or more");
  const bool has_gpus = devices != nullptr && std::ranges::any_of(*devices, [](const std::string& each) {
                          return each.find("GPU") != std::string::npos || each.find("gpu") != std::string::npos;
                        });
  return options.progress_thread.value_or(may_have_thread && !has_gpus && session.topology().node_count() > 1);
}

// Returns the session for strategies that are given none. MPI can be started only once, so the session is kept until
// the program's end. A strategy that an exit() leaves behind keeps it for longer.
const std::shared_ptr<Session>& session_of_program(const StrategyOptions& options) {
  static const std::shared_ptr<Session> one =
      std::make_shared<Session>(start({.cluster_resolver = options.cluster_resolver}));
  return one;
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session_of_program(options), 1, nullptr, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(int replicas, const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session_of_program(options), replicas, nullptr, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const std::vector<std::string>& devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session_of_program(options), static_cast<int>(devices.size()), &devices, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const std::shared_ptr<Session>& session, int replicas,
                                                         const std::vector<std::string>* devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(*session, replicas, devices, options) {
  state().session = session;
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, 1, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, int replicas, const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, replicas, nullptr, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, const std::vector<std::string>& devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, static_cast<int>(devices.size()), &devices, options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, int replicas,
                                                         const std::vector<std::string>* devices,
                                                         const StrategyOptions& options)
    : Strategy("MultiWorkerMirroredStrategy",
               {.order = options.order,
                .wait_limits = options.wait_limits.value_or(session.exchange().wait_limits()),
                .log = options.log.value_or(session.log()),
                .algorithm = session.settings().algorithm(),
                .table_path = session.settings().table().value_or(std::string()),
                .node_memory = session.settings().node_memory(),
                .nccl = session.settings().nccl(),
                .strict = session.settings().strict(),
                .pin = options.pin,
                .progress_thread = needs_progress_thread(session, devices, options),
                .ops = options.cross_device_ops,
                .communication = options.communication}) {
  auto [placements, wrong] = requested_placements(devices);
  const std::vector<int> all = replicas_of_all(session, replicas, wrong, detail::StrategyState::max_local_replicas,
                                               options.cluster_resolver != nullptr, wants_leader());
  state().resolver = cluster_of(session, options.cluster_resolver);
  if (session.size() > 1) state().devices.set_home("worker", session.rank(), session.size());
  const bool one_each = std::ranges::all_of(all, [](int number) { return number == 1; });
  if (session.size() == 1 && !placements.empty())
    state().begin_here(std::move(placements));
  else if (session.size() > 1 && one_each)
    begin_ranks(session, std::move(placements));
  else if (session.size() == 1)
    state().begin_here(replicas);
  else
    begin_threads(session, all, std::move(placements));
  log_devices(session);
}

Communicator MultiWorkerMirroredStrategy::of_ranks(Communicator& parent, std::string name, std::string member) {
  CommunicatorOptions options = parent.options();
  options.order = order();
  options.name = std::move(name);
  options.algorithm = state().config.options().algorithm;
  options.nccl = state().config.options().nccl;
  options.timeout = state().config.limit();
  options.progress_thread = member == "replica" && state().config.options().progress_thread;
  options.progress_bytes = min_progress_bytes;
  options.member = std::move(member);
  return parent.duplicate(std::move(options));
}

void MultiWorkerMirroredStrategy::begin_channels(Session& session) {
  state().channels.begin(
      [&](Channel channel) { return of_ranks(session.world(), text(to_string(channel), " channel")); });
}

// After a failure, new communicators come from that of health. The world may be in use then, or have failed.
void MultiWorkerMirroredStrategy::begin_ranks(Session& session, std::vector<detail::ReplicaPlacement> placements) {
  state().place(std::move(placements), 1);
  begin_channels(session);
  state().begin(1, session.rank(), session.size(), [this, is_first = true]() mutable {
    if (!std::exchange(is_first, false)) renew_training();
    return [this](int /*local*/) {
      return std::make_unique<Communicator>(of_ranks(state().channels.at(Channel::health), "replicas", "replica"));
    };
  });
}

// A process cannot know if the channel has failed on another one, so all of them make it again.
void MultiWorkerMirroredStrategy::renew_training() {
  state().channels.replace(Channel::training, of_ranks(state().channels.at(Channel::health), "training channel"));
}

bool MultiWorkerMirroredStrategy::wants_leader() {
  return state().config.options().ops && state().config.options().ops->wants_leader();
}

void MultiWorkerMirroredStrategy::begin_threads(Session& session, const std::vector<int>& all,
                                                std::vector<detail::ReplicaPlacement> placements) {
  const auto me = all.begin() + session.rank();
  telling_the_others(std::array{&session.exchange()}, [&] {
    if (placements.empty() && state().config.options().pin) placements = placements_beside_others(session, all);
    state().place(std::move(placements), *me);
    begin_channels(session);
  });
  const ThreadMembers threads = session.threads_of_all(*me);
  std::vector<Exchange*> mine;
  mine.reserve(threads.exchanges->size());
  for (const auto& each : *threads.exchanges) mine.push_back(each.get());
  const auto prepare = [this, &session, local = *me, next = std::optional(threads)]() mutable {
    if (!next) {
      renew_training();
      next = session.threads_of_all(local);
    }
    return session.members(*std::exchange(next, std::nullopt),
                           {.order = order(),
                            .progress_thread = state().config.options().progress_thread,
                            .progress_bytes = min_progress_bytes,
                            .name = "replicas",
                            .algorithm = state().config.options().algorithm,
                            .nccl = state().config.options().nccl,
                            .member = "replica"});
  };
  telling_the_others(mine, [&] {
    state().begin(*me, std::accumulate(all.begin(), me, 0), std::accumulate(all.begin(), all.end(), 0), prepare);
  });
}

void MultiWorkerMirroredStrategy::log_devices(const Session& session) {
  if (session.size() == 1)
    state().announce(text("Single-worker MultiWorkerMirroredStrategy with local_devices = ", state().devices.to_text(),
                          ", communication = CommunicationImplementation.", to_string(communication().implementation)));
  else if (session.rank() == 0)
    log().notice(text("MultiWorkerMirroredStrategy with num_workers = ", session.size(),
                      ", local_devices = ", state().devices.to_text(), ", communication = CommunicationImplementation.",
                      to_string(communication().implementation)));
}

}  // namespace lockstep
