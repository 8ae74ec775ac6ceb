// SPDX-License-Identifier: Apache-2.0
// Sends bursts over sockets between machines, and measures the rate at which they arrive.
#include "tools/lockstep/doctor_links.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>

#include "topology/base/descriptor.hpp"

namespace lockstep::command {
namespace {

using LinkClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds burst_takes{200};  // two moments, because a connection begins slowly
constexpr std::chrono::milliseconds try_takes{300};    // with the time to connect
constexpr int most_tries = 3;  // of a link that seems slow, because its host may be busy just now
constexpr std::size_t link_token_bytes = 16;
constexpr std::size_t most_callers = 16;
using LinkToken = std::array<std::byte, link_token_bytes>;

struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

std::optional<SocketName> socket_name(const std::string& address, std::uint16_t port) {
  SocketName name;
  auto& four = reinterpret_cast<sockaddr_in&>(name.storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(name.storage);
  if (::inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    name.size = sizeof four;
  } else if (::inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    name.size = sizeof six;
  } else {
    return std::nullopt;
  }
  return name;
}

// Handles the ends of two links: it receives from the machine before, and sends to the next one.
class LinkTry {
 public:
  explicit LinkTry(const std::string& address) {
    if (::getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size())) return;
    auto name = socket_name(address, 0);
    if (!name) return;
    OwnedDescriptor socket(::socket(name->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket || ::bind(socket.get(), name->get(), name->size) != 0 || ::listen(socket.get(), most_callers) != 0 ||
        ::getsockname(socket.get(), name->get(), &name->size) != 0)
      return;
    port_ = ntohs(name->storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(name->storage).sin_port
                                                     : reinterpret_cast<sockaddr_in6&>(name->storage).sin6_port);
    listener_ = std::move(socket);
  }

  // Returns the offer for the machine before: the port (0: there is none) and the token that proves its identity.
  Bytes offer() const {
    Writer writer;
    writer.put(port_);
    for (const std::byte each : token_) writer.put(each);
    return writer.take();
  }

  double run(const std::string& next, const Bytes& offer) {
    begin_ = LinkClock::now();
    call(next, offer);
    while ((out_ || !is_heard_) && LinkClock::now() - begin_ < try_takes) step();
    return meter_.mbit_per_s();
  }

 private:
  struct IncomingLink {
    OwnedDescriptor socket;
    LinkToken token{};
    std::size_t bytes = 0;
  };

  void call(const std::string& next, const Bytes& offer) {
    Reader reader(offer);
    const auto port = reader.get<std::uint16_t>();
    for (std::byte& each : next_token_) each = reader.get<std::byte>();
    auto name = socket_name(next, port);
    if (port == 0 || !name) return;
    out_ = OwnedDescriptor(::socket(name->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (out_ && ::connect(out_.get(), name->get(), name->size) != 0 && errno != EINPROGRESS) out_ = {};
  }

  void step() {
    std::vector<pollfd> all;
    if (!is_heard_ && !in_ && listener_) all.push_back({listener_.get(), POLLIN, 0});
    if (in_) all.push_back({in_.get(), POLLIN, 0});
    for (const IncomingLink& each : callers_) all.push_back({each.socket.get(), POLLIN, 0});
    if (out_) all.push_back({out_.get(), POLLOUT, 0});
    constexpr int soon_ms = 5;
    if (::poll(all.data(), all.size(), soon_ms) <= 0 && is_sending_) return end_burst();
    if (!in_ && !is_heard_) let_in();
    if (in_) receive();
    if (out_) send();
  }

  // Accepts callers. They prove themselves first, because any process that reaches the port could send.
  void let_in() {
    for (;;) {
      OwnedDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      if (callers_.size() == most_callers) callers_.erase(callers_.begin());
      callers_.push_back({std::move(socket)});
    }
    for (IncomingLink& each : callers_) {
      const ssize_t got = ::recv(each.socket.get(), each.token.data() + each.bytes, each.token.size() - each.bytes, 0);
      if (got <= 0) continue;
      each.bytes += static_cast<std::size_t>(got);
      if (each.bytes < each.token.size() || each.token != token_) continue;
      in_ = std::move(each.socket);
      callers_.clear();
      return;
    }
  }

  void receive() {
    constexpr int most_turns = 16;  // bounds the loop, because sending must continue
    for (int i = 0; i < most_turns; ++i) {
      const ssize_t got = ::recv(in_.get(), room_.data(), room_.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) {
        in_ = {};
        is_heard_ = true;
        return;
      }
      const std::chrono::duration<double> at = LinkClock::now() - begin_;
      meter_.add(at.count(), static_cast<std::size_t>(got));
    }
  }

  void send() {
    if (!is_sending_) {
      const ssize_t sent = ::send(out_.get(), next_token_.data(), next_token_.size(), MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
      if (sent != static_cast<ssize_t>(next_token_.size())) return void(out_ = {});
      is_sending_ = true;
      sending_since_ = LinkClock::now();
    }
    const ssize_t sent = ::send(out_.get(), zeros_.data(), zeros_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return void(out_ = {});
    end_burst();
  }

  // Ends the burst. The bytes that the kernel still holds must not fill a slow link for seconds.
  void end_burst() {
    if (!out_ || LinkClock::now() - sending_since_ < burst_takes) return;
    const linger at_once{1, 0};
    ::setsockopt(out_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    out_ = {};
  }

  LinkToken token_{};
  LinkToken next_token_{};
  std::uint16_t port_ = 0;
  OwnedDescriptor listener_;
  OwnedDescriptor out_;
  OwnedDescriptor in_;
  std::vector<IncomingLink> callers_;
  bool is_sending_ = false;
  bool is_heard_ = false;  // the machine before has ended its burst
  LinkClock::time_point begin_;
  LinkClock::time_point sending_since_;
  RateMeter meter_;
  std::vector<std::byte> zeros_ = std::vector<std::byte>(std::size_t{1} << 18U);
  std::vector<std::byte> room_ = std::vector<std::byte>(zeros_.size());
};

}  // namespace

void RateMeter::add(double at_s, std::size_t bytes) {
  samples_.push_back({at_s, static_cast<double>(bytes) + (samples_.empty() ? 0 : samples_.back().bytes)});
}

double RateMeter::mbit_per_s() const {
  if (samples_.size() < 2) return 0;
  const auto rate = [](const Sample& from, const Sample& to) {
    return to.at_s > from.at_s ? 8e-6 * (to.bytes - from.bytes) / (to.at_s - from.at_s) : 0;
  };
  double best = 0;
  std::size_t from = 0;
  for (const Sample& to : samples_) {
    while (to.at_s - samples_[from + 1].at_s >= moment_s) ++from;
    if (to.at_s - samples_[from].at_s >= moment_s) best = std::max(best, rate(samples_[from], to));
  }
  return best > 0 ? best : rate(samples_.front(), samples_.back());
}

namespace {

std::vector<double> try_once(Exchange& exchange, const Topology& topology, const CommonSubnet& subnet) {
  const auto leader = [&](std::size_t index) { return topology.ranks_of_node(subnet.nodes[index]).front(); };
  std::size_t mine = 0;
  while (mine < subnet.nodes.size() && leader(mine) != exchange.rank()) ++mine;
  std::optional<LinkTry> link;
  if (mine < subnet.nodes.size()) link.emplace(subnet.addresses[mine]);
  const auto offers = exchange.all_gather("doctor: nodes of links", link ? link->offer() : Bytes());
  double rate = 0;
  if (link) {
    const std::size_t next = (mine + 1) % subnet.nodes.size();
    rate = link->run(subnet.addresses[next], offers.at(static_cast<std::size_t>(leader(next))));
  }
  std::vector<double> all;
  for (const Bytes& each : exchange.all_gather("doctor: link rates", Writer().put(rate).take()))
    all.push_back(Reader(each).get<double>());
  return all;
}

}  // namespace

std::vector<double> try_links(Exchange& exchange, const Topology& topology, const CommonSubnet& subnet) {
  std::vector<double> best(static_cast<std::size_t>(topology.size()));
  const auto seems_slow = [&](double rate) { return rate > 0 && is_slow_link(rate, subnet.claimed_mbit_per_s); };
  for (int i = 0; i == 0 || (i < most_tries && std::ranges::any_of(best, seems_slow)); ++i) {
    const std::vector<double> rates = try_once(exchange, topology, subnet);
    std::ranges::transform(best, rates, best.begin(), [](double one, double other) { return std::max(one, other); });
  }
  return best;
}

}  // namespace lockstep::command
