// SPDX-License-Identifier: Apache-2.0
// Measures the network between nodes in up to three turns: small messages, one long stream per node, and all rails at
// once.
#include "collectives/mpi/measure_network.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::seconds passing_takes{5};

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Reads a clock that is the same for all processes of a host.
double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Says how many bytes one member moved, and when.
struct TransferSpan {
  double begin = 0;
  double end = 0;
  double bytes = 0;
};

// Returns the CPU time of this thread.
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

// Measures between the first members of all nodes at the same time, as collectives use the links. The other members
// sleep until theirs is done.
class NetworkMeasurement {
 public:
  NetworkMeasurement(Transport& transport, const Topology& topology)
      : transport_(transport), nodes_(topology.node_count()) {
    const int node = topology.member(transport.rank()).node;
    const auto leader = [&](int other) { return topology.ranks_of_node((other + nodes_) % nodes_).front(); };
    led_ = topology.ranks_of_node(node);
    leads_ = leader(node) == transport.rank();
    next_ = leader(node + 1);
    before_ = leader(node - 1);
  }

  // Measures all but the rate of one long stream. Its rate chooses the number of bytes for second().
  Topology::Network first() {
    Topology::Network measured{.crowd = crowd()};
    lead(true, [&] {
      measured.latency_us = latency_us(next_, before_);
      if (led_.size() > 1) measured.node_latency_us = latency_us(led_[1], led_[1]);
      measured.short_bytes_per_us = short_bytes_per_us(measured.latency_us);
      measured.bytes_per_us = bytes_per_us(3);  // one measurement may be disturbed
    });
    return measured;
  }

  // Measures the rate of one connection per node.
  double second(double bytes_per_us_of_all) {
    constexpr double long_enough_us = 150'000;
    const double passes = long_enough_us * bytes_per_us_of_all / static_cast<double>(one_pass);
    double rate = bytes_per_us_of_all;
    if (passes > 2) lead(false, [&] { rate = bytes_per_us(static_cast<int>(std::min(passes, 160.0))); });
    return leads_ ? rate : 0;
  }

  // Measures all rails at once, because one connection may not fill the link of a node.
  TransferSpan third(double bytes_per_us_of_all, const Topology& topology) {
    const int local = topology.index_in_node(transport_.rank());
    const auto peer = [&](int node) {
      const auto ranks = topology.ranks_of_node((node + nodes_) % nodes_);
      return ranks[static_cast<std::size_t>(local)];
    };
    if (local >= rails_of(topology)) return {};
    const int node = topology.member(transport_.rank()).node;
    next_ = peer(node + 1);
    before_ = peer(node - 1);
    constexpr double long_enough_us = 50'000;
    const double passes = long_enough_us * bytes_per_us_of_all / static_cast<double>(one_pass) / rails_of(topology);
    return stretch(static_cast<int>(std::clamp(passes, 4.0, 160.0)));
  }

  static int rails_of(const Topology& topology) {
    std::size_t least = std::numeric_limits<int>::max();
    for (int node = 0; node < topology.node_count(); ++node)
      least = std::min(least, topology.ranks_of_node(node).size());
    return static_cast<int>(least);
  }

 private:
  // Returns the programs per core, from the share of a core that this thread gets. All members measure at once. It
  // takes the best of two moments, because other work disturbs now and then.
  static double crowd() {
    constexpr int moments = 2;
    constexpr double moment_us = 16'000;  // several turns of the programs that share a core
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

  // Returns the time of a small message, averaged over both ways. It takes the fastest of many, which nobody disturbed.
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

  // Returns the rate of a short message beyond the latency. A link with a rate limit may pass a short message at full
  // speed.
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
        if (each != transport_.rank()) transport_.send_control(each, to_bytes("done"));
      }
      return;
    }
    if (answers && led_[1] == transport_.rank()) latency_us(led_.front(), led_.front());
    const auto begin = std::chrono::steady_clock::now();
    while (!std::exchange(was_told_, false) && !transport_.receive_control()) {
      if (std::chrono::steady_clock::now() - begin > 2 * passing_takes)
        throw Error(Code::stall, text("rank ", led_.front(), " has not measured the network in time"));
      transport_.sleep(10'000'000);
    }
  }

  // Returns the best rate of several passes in a row, so something is always under way. Later passes count more: links
  // may pass the first bytes without their limit, and connections start slowly. It rates four passes together if there
  // are enough, since a link that was idle for a moment also passes more.
  double bytes_per_us(int passes) {
    std::vector<std::byte> data(2 * one_pass);
    std::vector<double> times{now_us()};
    for (int i = 0; i < passes; ++i) {
      pass(data, next_, before_);
      times.push_back(now_us());
    }
    const std::size_t some = passes >= 12 ? 4 : 1;
    double best = 0;
    for (std::size_t i = some == 1 ? 0 : times.size() / 4; i + some < times.size(); ++i)
      best = std::max(best, static_cast<double>(some * one_pass) / (times[i + some] - times[i]));
    return best;
  }

  // Measures all but the first quarter of the passes.
  TransferSpan stretch(int passes) {
    std::vector<std::byte> data(2 * one_pass);
    TransferSpan counted;
    for (int i = 0; i < passes; ++i) {
      if (i == passes / 4) counted = {now_us(), 0, 0};
      pass(data, next_, before_);
      counted.bytes += static_cast<double>(one_pass);
    }
    counted.end = now_us();
    return counted;
  }

  // Sends half of the data to one member, and receives the other half from another.
  void pass(std::span<std::byte> data, int to, int from) {
    const SendDescriptor out{to, data.data(), data.size() / 2};
    const ReceiveDescriptor in{from, data.data() + data.size() / 2, data.size() / 2};
    std::uint32_t& call_tag = to == next_ ? call_tag_ : node_call_tag_;
    transport_.post({0, ++call_tag}, {&out, 1}, {&in, 1});
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned turns = 0; !transport_.done(0); ++turns) {
      std::this_thread::yield();
      if (turns % 64 != 63) continue;
      was_told_ = transport_.receive_control().has_value() || was_told_;  // throws if a member is gone
      if (std::chrono::steady_clock::now() - begin > passing_takes)
        throw Error(Code::stall, text("a message from rank ", from, " to rank ", transport_.rank(), " takes more than ",
                                      format_duration(passing_takes)));
    }
  }

  static constexpr std::size_t one_pass = 1U << 20U;

  Transport& transport_;
  int nodes_;
  std::span<const int> led_;
  bool leads_ = false;
  int next_ = 0;
  int before_ = 0;
  std::uint32_t call_tag_ = 0;
  std::uint32_t node_call_tag_ = 1000;
  bool was_told_ = false;  // the leader's message came before it was awaited
  std::array<std::byte, 16> small_{};
};

// Combines all measurements into one result for all members: medians of latencies and crowds, and the slowest link.
Topology::Network measured_by_all(Exchange& exchange, const Topology::Network& mine) {
  Topology::Network all;
  std::vector<double> latencies;
  std::vector<double> crowds;
  std::vector<double> node_latencies;
  std::vector<double> short_rates;
  const auto words = Writer()
                         .put(mine.latency_us)
                         .put(mine.bytes_per_us)
                         .put(mine.crowd)
                         .put(mine.node_latency_us)
                         .put(mine.short_bytes_per_us)
                         .take();
  for (const Bytes& each : exchange.all_gather("network measurements", words)) {
    Reader reader(each);
    const auto latency = reader.get<double>();
    const auto rate = reader.get<double>();
    crowds.push_back(reader.get<double>());
    if (const auto us = reader.get<double>(); us > 0) node_latencies.push_back(us);
    const auto short_rate = reader.get<double>();
    if (!(latency > 0 && rate > 0)) continue;  // not the leader of a node
    latencies.push_back(latency);
    short_rates.push_back(short_rate);
    all.bytes_per_us = all.bytes_per_us == 0 ? rate : std::min(all.bytes_per_us, rate);
  }
  if (latencies.empty()) return {};
  all.latency_us = middle(latencies);
  all.crowd = middle(crowds);
  all.short_bytes_per_us = middle(short_rates);
  if (!node_latencies.empty()) all.node_latency_us = middle(node_latencies);
  return all;
}

// Returns the rate of the slowest node: the bytes of all its rails, from the first begin to the last end.
double of_nodes(Exchange& exchange, const Topology& topology, const TransferSpan& mine) {
  std::vector<TransferSpan> nodes(static_cast<std::size_t>(topology.node_count()));
  int rank = 0;
  for (const Bytes& each :
       exchange.all_gather("rates of rails", Writer().put(mine.begin).put(mine.end).put(mine.bytes).take())) {
    TransferSpan& node = nodes[static_cast<std::size_t>(topology.member(rank++).node)];
    Reader reader(each);
    const auto begin = reader.get<double>();
    const auto end = reader.get<double>();
    const auto bytes = reader.get<double>();
    if (bytes == 0) continue;
    node.begin = node.bytes == 0 ? begin : std::min(node.begin, begin);
    node.end = std::max(node.end, end);
    node.bytes += bytes;
  }
  double least = std::numeric_limits<double>::max();
  for (const TransferSpan& node : nodes) least = std::min(least, node.bytes / std::max(1.0, node.end - node.begin));
  return least;
}

// Throws on all members if `try_it` throws on one.
template <class Try>
void together(Exchange& exchange, std::string_view what, const Try& try_it) {
  std::string wrong;
  try {
    try_it();
  } catch (const Error& error) {
    wrong = error.detail();
  }
  for (const Bytes& each : exchange.all_gather(what, to_bytes(wrong))) {
    if (wrong.empty()) wrong = to_string(each);
  }
  if (!wrong.empty()) throw Error(Code::system, wrong);
}

}  // namespace

Topology::Network measure_network(Transport& transport, Exchange& exchange, const Topology& topology) {
  NetworkMeasurement now(transport, topology);
  Topology::Network mine;
  together(exchange, "the first measurement", [&] { mine = now.first(); });
  const Topology::Network first = measured_by_all(exchange, mine);
  together(exchange, "the second measurement", [&] { (mine = first).bytes_per_us = now.second(first.bytes_per_us); });
  Topology::Network all = measured_by_all(exchange, mine);
  all.flow_bytes_per_us = all.bytes_per_us;
  if (NetworkMeasurement::rails_of(topology) == 1) return all;
  TransferSpan rails;
  together(exchange, "the measurement of rails", [&] { rails = now.third(all.bytes_per_us, topology); });
  all.bytes_per_us = std::max(all.bytes_per_us, of_nodes(exchange, topology, rails));
  return all;
}

}  // namespace lockstep
