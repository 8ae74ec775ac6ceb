// SPDX-License-Identifier: Apache-2.0
// Decides whether MPI or sockets carry a session's messages, by the setting, the launcher, the networks and a trial.
#include "collectives/mpi/transport_choice.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "collectives/mpi/measure_network.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::seconds trying_takes{5};

// True if an interface with a known speed has no IP address, as ports of InfiniBand have none.
bool has_fabric(const Topology& topology, int node) {
  const auto& nics = topology.machine_of_node(node).nics;
  for (std::size_t nic = 0; nic < nics.size(); ++nic) {
    const bool is_named = std::ranges::any_of(
        topology.node(node).addresses, [&](const NicAddress& each) { return each.nic == static_cast<int>(nic); });
    if (!is_named && nics[nic].mbit_per_s > 0) return true;
  }
  return false;
}

bool all_have_fabric(const Topology& topology) {
  for (int node = 0; node < topology.node_count(); ++node) {
    if (!has_fabric(topology, node)) return false;
  }
  return true;
}

struct ChosenNetwork {
  std::string address;  // of this node; empty: use MPI
  std::string why;
};

// True if the launcher lets the other ranks go on after a death. They must hear of that death, so MPI will not do. All
// ranks get the same answer: true only if the launcher tells it to all of them.
bool all_go_on(Exchange& exchange) {
  const std::byte mine{launcher_keeps_survivors(process_environment)};
  const auto all = exchange.all_gather("whether the launcher keeps the other ranks when one dies", {&mine, 1});
  return std::ranges::all_of(all, [](const Bytes& each) { return each == Bytes{std::byte{1}}; });
}

// Applies the table of docs/node.md. All members get the same choice, since they have the same topology and settings.
ChosenNetwork intent_of(const Session& session, bool survives) {
  const Topology& topology = session.topology();
  const std::string& wanted = session.settings().transport();
  if (wanted == "mpi") return {{}, "LOCKSTEP_TRANSPORT asks for it"};
  if (wanted == "ucx")
    throw Error(Code::bad_setting, "LOCKSTEP_TRANSPORT=ucx, but this was started by an MPI launcher",
                "take mpi, tcp or auto; UCX is for processes that TF_CONFIG names");
  const bool must = wanted == "tcp";
  if (!must && !survives && topology.node_count() == 1) return {{}, "all are on one node"};
  if (!must && !survives && all_have_fabric(topology)) return {{}, "all nodes have a network that is faster than TCP"};
  if (const auto why_not = why_no_tcp()) {
    if (must) throw Error(Code::usage, *why_not, "install libssl-dev and build again, or set LOCKSTEP_TRANSPORT=mpi");
    return {{}, *why_not};
  }
  const std::string interface = session.settings().interface();
  if (const auto addresses = common_network(topology, interface))
    return {addresses->at(static_cast<std::size_t>(topology.member(session.rank()).node)),
            must       ? "LOCKSTEP_TRANSPORT asks for it"
            : survives ? "the launcher keeps the other ranks when one dies"
                       : "all nodes are in one network"};
  if (topology.node_count() == 1 && interface.empty())
    return {"127.0.0.1", must ? "LOCKSTEP_TRANSPORT asks for it" : "the launcher keeps the other ranks when one dies"};
  const std::string why = text("no network has an address of every node",
                               interface.empty() ? "" : text(" at the interface ", printable(interface)));
  if (must)
    throw Error(Code::bad_setting, text("LOCKSTEP_TRANSPORT=tcp, but ", why),
                "check the addresses that `lockstep topo` shows; LOCKSTEP_INTERFACE names the interface");
  return {{}, why};
}

// Sends a control message from every member to the next one. Returns the trouble, or an empty string.
std::string try_it(Transport& transport) {
  const int size = transport.size();
  if (size == 1) return {};
  try {
    transport.send_control((transport.rank() + 1) % size, to_bytes("here"));
    const auto begin = std::chrono::steady_clock::now();
    while (!transport.receive_control()) {
      if (std::chrono::steady_clock::now() - begin > trying_takes)
        return text("rank ", (transport.rank() + size - 1) % size, " cannot connect to rank ", transport.rank());
      transport.sleep(1'000'000);
    }
    return {};  // its own message is delivered while it waits for the others
  } catch (const Error& error) {
    return std::string(error.detail());
  }
}

const std::string& host_of(const Session& session) {
  const Topology& topology = session.topology();
  return topology.node(topology.member(session.rank()).node).host;
}

}  // namespace

// Opens the sockets, lets every member reach the next one, and measures the network. One failure makes all use MPI, or
// is an error if TCP was asked for.
TransportChoice::TransportChoice(Session& session) {
  Exchange& exchange = session.exchange();
  ChosenNetwork intent = intent_of(session, session.settings().transport() == "auto" && all_go_on(exchange));
  why_ = std::move(intent.why);
  if (intent.address.empty()) return;
  auto key = key_of_job(exchange);
  std::string wrong;
  try {
    tcp_ = std::make_unique<Tcp>(TcpOptions{.key = std::move(key),
                                            .address = intent.address,
                                            .silence = session.settings().silence(),
                                            .label = text(host_of(session), " at ", intent.address),
                                            .log = session.log()});
  } catch (const Error& error) {
    wrong = error.detail();
  }
  const auto say = [&](std::string_view what) {
    for (const Bytes& each : exchange.all_gather(what, to_bytes(wrong))) {
      if (wrong.empty()) wrong = to_string(each);
    }
  };
  say("listening addresses");
  if (wrong.empty()) {
    const auto transport = tcp_->transport(exchange);
    wrong = try_it(*transport);
    say("reachable members");  // nobody ends before all control messages have come
    if (wrong.empty() && session.topology().node_count() > 1) {
      try {
        network_ = measure_network(*transport, exchange, session.topology());
      } catch (const Error& error) {
        wrong = error.detail();
      }
    }
  }
  if (wrong.empty()) return;
  tcp_.reset();
  if (session.settings().transport() == "tcp")
    throw Error(Code::system, text("members do not reach each other over TCP: ", wrong),
                "open the ports between the nodes, name another network by LOCKSTEP_INTERFACE, or take "
                "LOCKSTEP_TRANSPORT=mpi");
  if (session.rank() == 0)
    session.log().warn(text("members do not reach each other over TCP, so MPI carries their messages: ", wrong,
                            " -> open the ports between the nodes, or name another network by LOCKSTEP_INTERFACE; "
                            "LOCKSTEP_TRANSPORT=mpi says that it is meant"));
  why_ = wrong;
}

std::unique_ptr<Transport> TransportChoice::transport(Exchange& exchange) const {
  return tcp_ ? tcp_->transport(exchange) : mpi_transport(exchange);
}

}  // namespace lockstep
