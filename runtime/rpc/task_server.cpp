// SPDX-License-Identifier: Apache-2.0
// Implements the server of a task: start, presence and end of a cluster.
#include "runtime/rpc/task_server.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "topology/base/descriptor.hpp"
#include "topology/base/duration.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Names the function that returns a task's type, its index and the text of the whole cluster. The caller passes the
// same about itself.
constexpr const char* who = "lockstep.who";
constexpr const char* over = "lockstep.over";
constexpr std::size_t most_words = 2000;

std::string words_of(const Task& task) { return text(task.type, ' ', task.index); }

// True if the host of an address has an address here. It may ask a name server, which may take long.
bool has_known_host(const std::string& address) {
  const std::string host = host_of(address);
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

// True if the system refuses a connection, or finds no route.
bool is_refused(const addrinfo& there) {
  constexpr int longest_ms = 1000;
  const OwnedDescriptor socket(::socket(there.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return false;
  int error = ::connect(socket.get(), there.ai_addr, there.ai_addrlen) == 0 ? 0 : errno;
  if (pollfd made{socket.get(), POLLOUT, 0}; error == EINPROGRESS && ::poll(&made, 1, longest_ms) > 0) {
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  return error != 0 && error != EINPROGRESS;
}

// True if no connection is possible. A server that ends connections of strangers is alive.
bool is_shut(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const std::string host = host_of(address);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) return true;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  for (const addrinfo* each = all.get(); each != nullptr; each = each->ai_next) {
    if (!is_refused(*each)) return false;
  }
  return true;
}

// Refuses a cluster that gives two tasks one address, since one of them would not be found. All tasks refuse it alike.
void refuse_shared_addresses(const ClusterSpec& cluster) {
  std::map<std::string_view, Task> at;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      const auto [entry, is_new] = at.try_emplace(address, Task{job, index});
      if (is_new) continue;
      throw Error(Code::cluster,
                  text("the cluster gives ", words_of(entry->second), " and ", words_of({job, index}),
                       " the same address, ", printable(address)),
                  "give each task a port of its own");
    }
  }
}

}  // namespace

// Tells waiting threads that the cluster is over, or that a task of another one called.
struct Server::Signal {
  std::mutex mutex;
  std::condition_variable changed;
};

// Adds the two functions by which tasks introduce themselves and announce the end. The server starts later.
Server::Server(ClusterSpec cluster, std::string job, int index, TaskServerOptions options)
    : cluster_(std::move(cluster)),
      me_{std::move(job), index},
      options_(std::move(options)),
      signal_(std::make_unique<Signal>()) {
  if (options_.lost_after <= Duration{})
    throw Error(Code::usage, "a task's server with no time in lost_after", "give the chief some seconds to answer");
  const std::string& mine = cluster_.task_address(me_.type, me_.index);
  refuse_shared_addresses(cluster_);
  rpc_ = rpc::RpcServer::create("grpc", options_.listen.empty() ? mine : options_.listen, {.key = options_.key});
  rpc_->add(who, [this](const std::string& type, int number, const std::string& theirs) {
    const std::string ours = to_string(cluster_);
    if (theirs != ours) {  // That task has our answer, and will not wait for our question.
      const std::lock_guard lock(signal_->mutex);
      stranger_ = text(printable(type), ' ', number, " is of another cluster, ", printable(theirs, most_words),
                       "; here it is ", ours);
      signal_->changed.notify_all();
    }
    return std::vector<std::string>{me_.type, std::to_string(me_.index), ours};
  });
  rpc_->add(over, [this](const std::string& theirs) {
    if (theirs != to_string(cluster_))
      throw Error(Code::cluster, text(words_of(me_), " is a task of another cluster: ", to_string(cluster_)),
                  "start all tasks with one cluster");
    const std::lock_guard lock(signal_->mutex);
    over_ = true;
    signal_->changed.notify_all();
  });
}

void Server::start() {
  if (started_) return;
  rpc_->start();
  started_ = true;
  options_.log.info(text("Started server with target: ", target()));
}

Server::~Server() = default;

// Returns a client for one question. The limit and the wait for the server differ from question to question.
std::unique_ptr<rpc::Client> Server::client_of(const PeerTask& other, TimeSpan timeout, bool waits) const {
  return rpc::Client::create("grpc", other.address,
                             {.timeout = timeout, .waits_for_server = waits, .key = options_.key});
}

std::string Server::name_of(const PeerTask& other) const { return text(words_of(other.task), " at ", other.address); }

// Returns all other tasks of the cluster. Evaluators may come and go, so few callers ask for them.
std::vector<Server::PeerTask> Server::peers(bool with_evaluators) const {
  std::vector<PeerTask> all;
  for (const auto& [job, tasks] : cluster_.jobs()) {
    for (const auto& [index, address] : tasks) {
      if ((with_evaluators || job != "evaluator") && Task{job, index} != me_) all.push_back({{job, index}, address});
    }
  }
  return all;
}

// Returns an empty text if the answer is that of the expected task.
std::string Server::task_mismatch(const PeerTask& other, const std::vector<std::string>& said) const {
  if (said.size() != 3) return text(name_of(other), " is not a task of Lockstep");
  if (said[0] != other.task.type || said[1] != std::to_string(other.task.index))
    return text(name_of(other), " says that it is ", printable(said[0]), ' ', printable(said[1]));
  if (said[2] != to_string(cluster_))
    return text(name_of(other), " is of another cluster, ", printable(said[2]), "; here it is ", to_string(cluster_));
  return {};
}

// Asks all tasks that have not answered, again and again. If the cluster is over meanwhile, it returns: some tasks may
// have ended already.
void Server::wait_for_all(TimeSpan limit) { wait_for(peers(false), {.warn = {}, .limit = limit}); }

void Server::wait_for_workers(WaitLimits wait_limits) { wait_for(workers(), wait_limits); }

// Returns the other tasks that train.
std::vector<Server::PeerTask> Server::workers() const {
  std::vector<PeerTask> all = peers(false);
  std::erase_if(all, [](const PeerTask& each) { return each.task.type != "chief" && each.task.type != "worker"; });
  return all;
}

// Looks for a worker that refuses connections. A process that is stopped accepts calls and does not answer them; one
// that has ended refuses them at once.
std::optional<std::string> Server::gone_worker() const {
  for (const PeerTask& each : workers()) {
    const auto client = client_of(each, seconds(1), false);
    const auto wrong = ask(*client).get_error();
    if (wrong && wrong->code() == Code::remote && is_shut(each.address))
      return text(name_of(each), " is gone: it no longer answers: ", wrong->detail());
  }
  return std::nullopt;
}

// Asks the missing tasks in rounds until all have answered. A task of another cluster, or with another key, ends the
// wait at once.
void Server::wait_for(std::vector<PeerTask> missing, WaitLimits wait_limits) {
  start();
  const auto begin = Clock::now();
  const Duration limit = wait_limits.limit;
  const auto end = limit > Duration{} ? begin + limit : Clock::time_point::max();
  bool warns = wait_limits.warn > Duration{};
  std::vector<std::unique_ptr<rpc::Client>> clients;
  clients.reserve(missing.size());
  while (!missing.empty() && !is_over_within({})) {
    const Duration left = end - Clock::now();
    refuse_stranger();
    if (warns && Clock::now() - begin > wait_limits.warn) {
      options_.log.warn(text(id(Code::stall), ' ', words_of(me_), " has waited ", format_duration(wait_limits.warn),
                             " for ", names_of_all(missing)));
      warns = false;
    }
    if (left <= Duration{}) refuse_missing(missing, limit);
    clients.clear();
    std::vector<rpc::StatusOrResult<std::vector<std::string>>> answers;
    for (const PeerTask& each : missing) {
      clients.push_back(client_of(each, std::min<Duration>(left, seconds(1)), true));
      answers.push_back(ask(*clients.back()));
    }
    std::vector<PeerTask> still;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const auto error = answers[i].get_error();
      if (error && error->code() == Code::usage)
        throw Error(Code::cluster, text(name_of(missing[i]), " is not a task of Lockstep: ", error->detail()),
                    "check which program uses that port");
      if (error && error->code() == Code::untrusted)
        throw Error(Code::untrusted, text(name_of(missing[i]), ": ", error->detail()));
      if (error)
        still.push_back(missing[i]);
      else if (const std::string wrong = task_mismatch(missing[i], answers[i].get_value()); !wrong.empty())
        throw Error(Code::cluster, wrong, "start all tasks with one cluster, each with its own type and index");
    }
    missing = std::move(still);
    if (missing.empty()) knows_leader_ = true;
    constexpr milliseconds pause{50};  // Some tasks answer at once, but with an error.
    if (!missing.empty() && is_over_within(pause)) return;
  }
}

// Introduces this task, and asks the other one to do the same.
rpc::StatusOrResult<std::vector<std::string>> Server::ask(rpc::Client& other) const {
  return other.call<std::vector<std::string>>(who, me_.type, me_.index, to_string(cluster_));
}

// Throws if a task of another cluster has asked this one.
void Server::refuse_stranger() {
  const std::lock_guard lock(signal_->mutex);
  if (!stranger_.empty()) throw Error(Code::cluster, stranger_, "start all tasks with one cluster");
}

// Names the tasks, and for the first ones also says if their host is unknown.
std::string Server::names_of_all(const std::vector<PeerTask>& some) const {
  std::size_t to_look_up = 2;  // A name server that does not answer takes long.
  std::vector<std::string> names;
  for (const PeerTask& each : some) {
    const bool is_unknown = to_look_up > 0 && !has_known_host(each.address);
    to_look_up -= to_look_up > 0 ? 1 : 0;
    names.push_back(text(name_of(each), is_unknown ? " (no address of that host is known here)" : ""));
  }
  return lockstep::join(names, ", ");
}

void Server::refuse_missing(const std::vector<PeerTask>& missing, TimeSpan limit) const {
  throw Error(Code::stall,
              text("Timeout waiting for the cluster: after ", format_duration(limit), " ", words_of(me_),
                   " has no answer of ", names_of_all(missing)),
              "check that those tasks were started, and can be reached from here at these addresses");
}

// Waits at most that long for the announcement of the end.
bool Server::is_over_within(TimeSpan time) {
  std::unique_lock lock(signal_->mutex);
  return signal_->changed.wait_for(lock, Duration(time), [&] { return over_; });
}

// True if the task answers within two seconds, and is the expected one.
bool Server::is_there(const PeerTask& other) const {
  const auto client = client_of(other, seconds(2), true);
  const auto answer = ask(*client);
  return answer.is_ok() && task_mismatch(other, answer.get_value()).empty();
}

// Waits for the end, and looks after the leader meanwhile, because nobody announces an end after the leader has died.
void Server::join() {
  start();
  const std::vector<PeerTask> all = peers(false);
  const auto leader = std::ranges::find_if(all, [&](const PeerTask& each) { return is_chief(cluster_, each.task); });
  if (leader == all.end()) {
    if (me_.type == "evaluator" || !is_chief(cluster_, me_))
      throw Error(Code::cluster, text(to_string(cluster_), " has no leader, so nothing ends it"),
                  "give it a chief, or a worker 0");
    while (!is_over_within(seconds(10))) {
    }
    return;
  }
  bool warned = false;
  auto last = Clock::now();
  const Duration pause = std::min<Duration>(seconds(1), options_.lost_after / 4);
  while (!is_over_within(pause)) {
    if (is_there(*leader)) {
      knows_leader_ = true;
      last = Clock::now();
    } else if (is_over_within({})) {  // The message came while the leader was asked; then the leader ended.
      return;
    } else if (knows_leader_ && Clock::now() - last > options_.lost_after) {
      throw Error(Code::peer_failed,
                  text(name_of(*leader), ", which leads the cluster, has not answered ", words_of(me_), " for ",
                       format_duration(options_.lost_after), ", and did not announce the end of the job"),
                  "see the error of that process, then start the cluster again");
    } else if (!knows_leader_ && !warned && Clock::now() - last > options_.lost_after) {
      options_.log.warn(text(words_of(me_), " waits for ", name_of(*leader), ", which leads the cluster"));
      warned = true;
    }
  }
}

// Tells all tasks at the same time. A task that does not answer has ended already, so that is no error.
void Server::shut_down_all() {
  const std::string mine = to_string(cluster_);
  std::vector<std::pair<std::unique_ptr<rpc::Client>, rpc::StatusOrResult<void>>> told;
  for (const PeerTask& each : peers(true)) {
    auto client = client_of(each, seconds(5), false);
    auto answer = client->call<void>(over, mine);
    told.emplace_back(std::move(client), std::move(answer));
  }
  for (const auto& [client, answer] : told) {
    if (const auto wrong = answer.get_error())
      options_.log.debug(text("shutting down ", client->address(), ": ", wrong->what()));
  }
  const std::lock_guard lock(signal_->mutex);
  over_ = true;
  signal_->changed.notify_all();
}

}  // namespace lockstep
