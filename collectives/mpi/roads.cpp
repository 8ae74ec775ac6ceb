// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/roads.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/mpi/mpi_transport.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::seconds trying_takes{5};

// An interface without an address of its own is of another kind than Ethernet's: InfiniBand's ports are.
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

struct Intent {
  std::string address;  // of this node; empty: by MPI
  std::string why;
};

Intent intent_of(const Session& session) {
  const Topology& topology = session.topology();
  const std::string& wanted = session.settings().transport();
  if (wanted == "mpi") return {{}, "LOCKSTEP_TRANSPORT says so"};
  if (wanted == "ucx")
    throw Error(Code::bad_setting, "LOCKSTEP_TRANSPORT=ucx, but this was started by an MPI launcher",
                "take mpi, tcp or auto; UCX is for processes that TF_CONFIG names");
  const bool must = wanted == "tcp";
  if (!must && topology.node_count() == 1) return {{}, "all are on one node"};
  if (!must && all_have_fabric(topology)) return {{}, "all nodes have a network that is faster than TCP"};
  if (const auto why_not = why_no_tcp()) {
    if (must) throw Error(Code::usage, *why_not, "install libssl-dev and build anew, or take LOCKSTEP_TRANSPORT=mpi");
    return {{}, *why_not};
  }
  const std::string interface = session.settings().interface();
  if (const auto addresses = common_network(topology, interface))
    return {addresses->at(static_cast<std::size_t>(topology.member(session.rank()).node)),
            must ? "LOCKSTEP_TRANSPORT says so" : "all nodes are in one network"};
  if (topology.node_count() == 1 && interface.empty()) return {"127.0.0.1", "LOCKSTEP_TRANSPORT says so"};
  const std::string why = text("no network has an address of every node",
                               interface.empty() ? "" : text(" at the interface ", printable(interface)));
  if (must)
    throw Error(Code::bad_setting, text("LOCKSTEP_TRANSPORT=tcp, but ", why),
                "look at the addresses that `lockstep topo` shows; LOCKSTEP_INTERFACE names the interface to take");
  return {{}, why};
}

// Everybody says a word to the next one. What is wrong; empty: nothing.
std::string try_it(Transport& transport) {
  const int size = transport.size();
  if (size == 1) return {};
  try {
    transport.tell((transport.rank() + 1) % size, to_bytes("here"));
    const auto begin = std::chrono::steady_clock::now();
    while (!transport.hear()) {
      if (std::chrono::steady_clock::now() - begin > trying_takes)
        return text("rank ", (transport.rank() + size - 1) % size, " does not come through to rank ", transport.rank());
      transport.sleep(1'000'000);
    }
    return {};  // its own word goes on while it waits for the others
  } catch (const Error& error) {
    return std::string(error.detail());
  }
}

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Of this thread.
double busy_us() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double middle(std::vector<double>& all) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, at);
  return *at;
}

// Between the first members of all nodes, all at once, as collectives have it. The others sleep until theirs has done.
class Measuring {
 public:
  Measuring(Transport& transport, const Topology& topology) : transport_(transport), nodes_(topology.node_count()) {
    const int node = topology.member(transport.rank()).node;
    const auto leader = [&](int other) { return topology.ranks_of_node((other + nodes_) % nodes_).front(); };
    led_ = topology.ranks_of_node(node);
    leads_ = leader(node) == transport.rank();
    next_ = leader(node + 1);
    before_ = leader(node - 1);
  }

  // Until the next one, of as many bytes as all say together then.
  Topology::Network first() {
    Topology::Network measured{.crowd = crowd()};
    lead(true, [&] {
      measured.latency_us = latency_us(next_, before_);
      if (led_.size() > 1) measured.near_us = latency_us(led_[1], led_[1]);
      measured.short_bytes_per_us = short_bytes_per_us(measured.latency_us);
      measured.bytes_per_us = bytes_per_us(3);  // something may be in the way of one
    });
    return measured;
  }

  double second(double bytes_per_us_of_all) {
    constexpr double long_enough_us = 150'000;
    const double passes = long_enough_us * bytes_per_us_of_all / static_cast<double>(one_pass);
    double rate = bytes_per_us_of_all;
    if (passes > 2) lead(false, [&] { rate = bytes_per_us(static_cast<int>(std::min(passes, 160.0))); });
    return leads_ ? rate : 0;
  }

 private:
  // How many there are for each core, by how little of it one gets; the best of a few moments, since something else is
  // always done now and then. All members do so at once.
  static double crowd() {
    constexpr int moments = 2;
    constexpr double moment_us = 16'000;  // several turns of who shares a core
    double least = 1000;
    for (int i = 0; i < moments; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const double busy_begin = busy_us();
      while (microseconds_since(begin) < moment_us) continue;
      const double busy = busy_us() - busy_begin;
      least = std::min(least, microseconds_since(begin) / std::max(1.0, busy));
    }
    return std::max(1.0, least);
  }

  // Of a small message, both ways; the quickest of many, where nobody was in the way.
  double latency_us(int to, int from) {
    constexpr int times = 21;
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < times; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int step = 0; step < 2; ++step) pass(small_, to, from);
      least = std::min(least, microseconds_since(begin) / 2);
    }
    return least;
  }

  // Of a short message, beyond what any takes: what limits a link may let it through at once.
  double short_bytes_per_us(double latency) {
    constexpr int times = 5;
    std::vector<std::byte> data(2 * Topology::short_message_bytes);
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < times; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      pass(data, next_, before_);
      least = std::min(least, microseconds_since(begin));
    }
    return static_cast<double>(Topology::short_message_bytes) / std::max(1.0, least - latency);
  }

  template <class Work>
  void lead(bool answers, const Work& work) {
    if (leads_) {
      work();
      for (const int each : led_) {
        if (each != transport_.rank()) transport_.tell(each, to_bytes("done"));
      }
      return;
    }
    if (answers && led_[1] == transport_.rank()) latency_us(led_.front(), led_.front());
    const auto begin = std::chrono::steady_clock::now();
    while (!std::exchange(was_told_, false) && !transport_.hear()) {
      if (std::chrono::steady_clock::now() - begin > 2 * trying_takes)
        throw Error(Code::stall, text("rank ", led_.front(), " has not measured the network in time"));
      transport_.sleep(10'000'000);
    }
  }

  // The best of so many turns in a row, in which something is always on its way: what links let through at once before
  // they begin to count, and how slowly a connection begins, is in the first ones.
  double bytes_per_us(int passes) {
    std::vector<std::byte> data(2 * one_pass);
    double best = 0;
    for (int i = 0; i < passes; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      pass(data, next_, before_);
      const double rate = static_cast<double>(one_pass) / microseconds_since(begin);
      if (i == 0 || i >= passes / 4) best = i == passes / 4 ? rate : std::max(best, rate);
    }
    return best;
  }

  // Half of it goes to the one, half comes from the other.
  void pass(std::span<std::byte> data, int to, int from) {
    const Outgoing out{to, data.data(), data.size() / 2};
    const Incoming in{from, data.data() + data.size() / 2, data.size() / 2};
    std::uint32_t& mark = to == next_ ? mark_ : near_mark_;
    transport_.post({0, ++mark}, {&out, 1}, {&in, 1});
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned turns = 0; !transport_.done(0); ++turns) {
      std::this_thread::yield();
      if (turns % 64 != 63) continue;
      was_told_ = transport_.hear().has_value() || was_told_;  // it throws where somebody is gone
      if (std::chrono::steady_clock::now() - begin > trying_takes)
        throw Error(Code::stall, text("a message from rank ", from, " to rank ", transport_.rank(), " takes more than ",
                                      format_duration(trying_takes)));
    }
  }

  static constexpr std::size_t one_pass = 1U << 20U;

  Transport& transport_;
  int nodes_;
  std::span<const int> led_;
  bool leads_ = false;
  int next_ = 0;
  int before_ = 0;
  std::uint32_t mark_ = 0;
  std::uint32_t near_mark_ = 1000;
  bool was_told_ = false;  // that who leads has done, before it was waited for
  std::array<std::byte, 16> small_{};
};

// The same on all: the middle latency and crowd, and the slowest link.
Topology::Network measured_by_all(Exchange& exchange, const Topology::Network& mine) {
  Topology::Network all;
  std::vector<double> latencies;
  std::vector<double> crowds;
  std::vector<double> near;
  std::vector<double> short_rates;
  const auto words = Writer()
                         .put(mine.latency_us)
                         .put(mine.bytes_per_us)
                         .put(mine.crowd)
                         .put(mine.near_us)
                         .put(mine.short_bytes_per_us)
                         .take();
  for (const Bytes& each : exchange.all_gather("what the network does", words)) {
    Reader reader(each);
    const auto latency = reader.get<double>();
    const auto rate = reader.get<double>();
    crowds.push_back(reader.get<double>());
    if (const auto us = reader.get<double>(); us > 0) near.push_back(us);
    const auto short_rate = reader.get<double>();
    if (!(latency > 0 && rate > 0)) continue;  // it leads no node
    latencies.push_back(latency);
    short_rates.push_back(short_rate);
    all.bytes_per_us = all.bytes_per_us == 0 ? rate : std::min(all.bytes_per_us, rate);
  }
  if (latencies.empty()) return {};
  all.latency_us = middle(latencies);
  all.crowd = middle(crowds);
  all.short_bytes_per_us = middle(short_rates);
  if (!near.empty()) all.near_us = middle(near);
  return all;
}

}  // namespace

Roads::Roads(Session& session) {
  Intent intent = intent_of(session);
  why_ = std::move(intent.why);
  if (intent.address.empty()) return;
  Exchange& exchange = session.exchange();
  auto key = key_of_job(exchange);
  std::string wrong;
  try {
    tcp_ = std::make_unique<Tcp>(TcpOptions{.key = std::move(key),
                                            .address = intent.address,
                                            .silence = session.settings().silence(),
                                            .log = session.log()});
  } catch (const Error& error) {
    wrong = error.detail();
  }
  const auto say = [&](std::string_view what) {
    for (const Bytes& each : exchange.all_gather(what, to_bytes(wrong))) {
      if (wrong.empty()) wrong = to_string(each);
    }
  };
  say("who can listen");
  if (wrong.empty()) {
    const auto transport = tcp_->transport(exchange);
    wrong = try_it(*transport);
    say("whom it reaches");  // nobody ends before all words have come
    if (wrong.empty() && session.topology().node_count() > 1) {
      Measuring now(*transport, session.topology());
      const auto measure = [&](const auto& what) {
        Topology::Network mine;
        try {
          what(mine);
        } catch (const Error& error) {
          wrong = error.detail();
        }
        network_ = measured_by_all(exchange, mine);
        say("what was measured");
      };
      measure([&](Topology::Network& mine) { mine = now.first(); });
      const Topology::Network before = network_;
      if (wrong.empty())
        measure([&](Topology::Network& mine) { (mine = before).bytes_per_us = now.second(before.bytes_per_us); });
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

std::unique_ptr<Transport> Roads::transport(Exchange& exchange) const {
  return tcp_ ? tcp_->transport(exchange) : mpi_transport(exchange);
}

}  // namespace lockstep
