// SPDX-License-Identifier: Apache-2.0
// Connects the tasks of a cluster as a session without MPI.
#include "runtime/task_session_backend.hpp"

#include <numeric>
#include <optional>

#include "collectives/engine/rescue.hpp"
#include "collectives/engine/transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/ucx/ucx_transport.hpp"
#include "runtime/rpc/rpc_exchange.hpp"
#include "runtime/rpc/task_server.hpp"
#include "topology/machine/network.hpp"

namespace lockstep {
namespace {

// Lets tasks meet at the server of the first task. Their data travels over TCP, or over UCX if the settings say so.
class TaskSessionBackend final : public SessionBackend {
 public:
  TaskSessionBackend(ClusterSpec cluster, const Task& me, std::string source, const Settings& settings, const Log& log)
      : cluster_(std::move(cluster)),
        source_(std::move(source)),
        address_(cluster_.task_address(me.type, me.index)),
        label_(text(me.type, ' ', me.index, " at ", address_)),
        rank_(id_in_cluster(cluster_, me)),
        size_(worker_count(cluster_, me.type)),
        key_(std::make_shared<const Secret>(secret_of_user(settings.key_file()))),
        server_(std::make_shared<Server>(cluster_, me.type, me.index, TaskServerOptions{.log = log, .key = key_})) {
    if (settings.transport() == "mpi")
      throw Error(Code::bad_setting, "LOCKSTEP_TRANSPORT=mpi, but this was not started by an MPI launcher",
                  "take tcp, ucx or auto, or start the processes by mpirun");
    if (settings.transport() == "ucx")
      ucx_.emplace(UcxOptions{.key = key_, .device = device_of(address_, log), .label = label_});
    tcp_.emplace(tcp_options(settings, log));
    if (rank_ == 0) exchange_server_ = std::make_unique<ExchangeServer>(server_->functions());
    log.info(text("this is ", label_, ", ", rank_, " of ", size_, " that train; the key is that of ", key_->source()));
    server_->start();
    server_->wait_for_workers({settings.stall_warn(), settings.timeout()});
  }

  std::unique_ptr<Exchange> exchange(WaitLimits wait_limits, const Log& log) override {
    RpcExchangeOptions options{.key = key_, .label = label_, .look = {}};
    if (rank_ == 0) {
      options.look = [weak = std::weak_ptr<const Server>(server_)]() -> std::optional<std::string> {
        const auto server = weak.lock();
        return server ? server->gone_worker() : std::nullopt;
      };
    }
    return rpc_exchange(exchange_address(), "tasks", rank_, size_, wait_limits, log, options);
  }

  std::vector<std::unique_ptr<Exchange>> of_threads(const std::vector<int>& numbers, Exchange& processes) override {
    const int all = std::accumulate(numbers.begin(), numbers.end(), 0);
    const int before = std::accumulate(numbers.begin(), numbers.begin() + rank_, 0);
    const int mine = numbers.at(static_cast<std::size_t>(rank_));
    const std::string name = text("threads ", ++families_);  // All processes make equally many.
    std::vector<std::unique_ptr<Exchange>> exchanges;
    exchanges.reserve(static_cast<std::size_t>(mine));
    for (int thread = 0; thread < mine; ++thread)
      exchanges.push_back(rpc_exchange(exchange_address(), name, before + thread, all, processes.wait_limits(),
                                       processes.log(),
                                       {.key = key_, .label = text("a replica of ", label_), .look = {}}));
    return exchanges;
  }

  std::unique_ptr<Transport> transport(Exchange& exchange) override {
    const auto lost = [&exchange] { return lost_member(exchange); };
    auto sockets = tcp_->transport(exchange, lost);
    // Survivors of a failure communicate by sockets, which notice the next failure.
    if (!ucx_ || !is_rpc_exchange(exchange)) return sockets;
    return with_rescue(ucx_->transport(exchange, lost), std::move(sockets));
  }

  bool failed() const override { return tcp_ && tcp_->has_lost(); }

  void end() noexcept override {
    exchange_server_.reset();
    server_.reset();
  }

  std::string describe() const override { return text("the tasks of ", source_); }

 private:
  // Returns the device for UCX: the interface that has the task's address.
  static std::string device_of(const std::string& address, const Log& log) {
    const std::string host = host_of(address);
    if (const auto found = interface_of(host)) return *found;
    if (process_environment("UCX_NET_DEVICES") == nullptr)
      log.warn(
          text("no interface of this host has the address of ", printable(host),
               ", so UCX listens on all of them -> give the task an address of this host, or name the interface by "
               "UCX_NET_DEVICES"));
    return {};
  }

  // Returns the address at which this task receives data: the task's own, or that of the interface in the settings.
  TcpOptions tcp_options(const Settings& settings, const Log& log) const {
    const std::string interface = settings.interface();
    TcpOptions options{.key = key_, .silence = settings.silence(), .label = label_, .log = log};
    for (const LocalNic& nic : interface.empty() ? std::vector<LocalNic>() : read_nics()) {
      for (const std::string& address : nic.addresses) {
        const bool is_wanted = nic.nic.name == interface || address.starts_with(interface);
        if (is_wanted && options.address.empty()) options.address = address.substr(0, address.find('/'));
      }
    }
    if (!options.address.empty()) return options;
    if (!interface.empty())
      throw Error(Code::bad_setting,
                  text("LOCKSTEP_INTERFACE=", printable(interface),
                       " is neither an interface of this host nor the beginning of an address of one"),
                  "see the output of `ip address`, or unset the variable");
    const std::string host = host_of(address_);
    const HostAddresses found = addresses_of(host);
    options.listens_everywhere = found.own.empty();
    if (!found.own.empty()) {
      options.address = found.own.front();
      return options;
    }
    if (found.others.empty())
      throw Error(Code::cluster, text("no address is known of ", printable(host), ", the host of this task"),
                  "let the cluster name this host by an address of it, or by a name that leads to one");
    log.warn(text("no interface of this host has the address of ", printable(host),
                  ", so it listens at all of them -> give the task an address of this host, or name the interface by "
                  "LOCKSTEP_INTERFACE"));
    options.address = found.others.front();
    return options;
  }

  // Returns the address of the first training task.
  std::string exchange_address() const {
    for (const char* const job : {"chief", "worker"}) {
      if (!cluster_.has(job)) continue;
      for (const auto& [index, address] : cluster_.jobs().at(job)) {
        if (id_in_cluster(cluster_, {job, index}) == 0) return address;
      }
    }
    throw Error(Code::internal, "a cluster without tasks that train");
  }

  ClusterSpec cluster_;
  std::string source_;
  std::string address_;
  std::string label_;
  int rank_;
  int size_;
  int families_ = 0;
  std::shared_ptr<const Secret> key_;
  std::optional<Ucx> ucx_;
  std::optional<Tcp> tcp_;
  std::shared_ptr<Server> server_;
  std::unique_ptr<ExchangeServer> exchange_server_;  // Ends before the server.
};

}  // namespace

std::shared_ptr<SessionBackend> make_task_session_backend(const ClusterSpec& cluster, const Task& me,
                                                          const std::string& source, const Settings& settings,
                                                          const Log& log) {
  return std::make_shared<TaskSessionBackend>(cluster, me, source, settings, log);
}

}  // namespace lockstep
