// SPDX-License-Identifier: Apache-2.0
// Reads interfaces from the system and from /sys, and looks up hosts.
#include "topology/machine/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Returns the first line of a file of /sys; empty if it cannot be read.
std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the NUMA node of a device; `none` if the machine does not tell.
int numa_of(const std::filesystem::path& device) {
  const auto numa = parse_integer(first_line(device / "numa_node"));
  return numa && *numa >= 0 ? static_cast<int>(*numa) : none;
}

// Returns "10.0.0.1/24"; empty for addresses that no other node can use.
std::string readable_address(const sockaddr* address, const sockaddr* mask) {
  std::array<char, INET6_ADDRSTRLEN> name{};
  int bits = 0;
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &four->sin_addr, name.data(), name.size());
    if (mask != nullptr) bits = std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return {};
    inet_ntop(AF_INET6, &six->sin6_addr, name.data(), name.size());
    for (int i = 0; mask != nullptr && i < 16; ++i) {
      bits += std::popcount(reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr[i]);
    }
  } else {
    return {};
  }
  return text(name.data(), "/", bits);
}

// Adds the active ports of InfiniBand devices, which have no interface of the network stack.
void add_infiniband(const std::filesystem::path& sys, std::vector<LocalNic>& all) {
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(sys / "class/infiniband", error)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      const auto rate = parse_infiniband_rate(first_line(port.path() / "rate"));
      if (!rate || first_line(port.path() / "state").find("ACTIVE") == std::string::npos) continue;
      const std::string name = text(device.path().filename().string(), ":", port.path().filename().string());
      all.push_back({{name, *rate, numa_of(device.path() / "device"), none}, {}});
    }
  }
}

}  // namespace

std::optional<std::int64_t> parse_infiniband_rate(std::string_view line) {
  const auto number = parse_number(line.substr(0, line.find(' ')));
  if (!number || line.find("Gb/sec") == std::string_view::npos) return std::nullopt;
  return std::llround(*number * 1000);
}

// Reads the interfaces that are up, without the loopback, with their rates and addresses. `sys` replaces /sys in tests.
std::vector<LocalNic> read_nics(const std::string& sys) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw system_error("the network interfaces cannot be read", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::map<std::string, std::vector<std::string>> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const bool usable = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || each->ifa_addr == nullptr) continue;
    const std::string address = readable_address(each->ifa_addr, each->ifa_netmask);
    if (!address.empty()) found[each->ifa_name].push_back(address);
  }
  std::vector<LocalNic> all;
  for (auto& [name, addresses] : found) {
    const std::filesystem::path place = std::filesystem::path(sys) / "class/net" / name;
    const auto speed = parse_integer(first_line(place / "speed"));
    all.push_back({{name, speed && *speed > 0 ? *speed : 0, numa_of(place / "device"), none}, std::move(addresses)});
  }
  add_infiniband(sys, all);
  std::ranges::sort(all, {}, [](const LocalNic& each) { return each.nic.name; });
  return all;
}

namespace {

using ResolvedHost = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

// Returns the addresses of a host name or a number; null if there are none. Brackets around IPv6 are allowed.
ResolvedHost resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* named = nullptr;
  const bool is_in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string bare = is_in_brackets ? host.substr(1, host.size() - 2) : host;
  if (getaddrinfo(bare.c_str(), nullptr, &hints, &named) != 0) named = nullptr;
  return {named, &freeaddrinfo};
}

// Returns all interfaces with their addresses; null if the system refuses.
Interfaces interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return {first, &freeifaddrs};
}

// Returns the bytes that tell hosts apart, without port and scope.
std::string_view bytes_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return {reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr};
  }
  if (address.sa_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  return {reinterpret_cast<const char*>(&v6.sin6_addr), sizeof v6.sin6_addr};
}

// True for all of 127.0.0.0/8. The loopback interface shows only one address of it.
bool is_loopback(const sockaddr& address) {
  constexpr std::uint32_t loopback = 127;
  return address.sa_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24U == loopback;
}

// Returns the interface that has the address; null if it is not of this host.
const ifaddrs* interface_with(const ifaddrs* first, const sockaddr& address) {
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != address.sa_family) continue;
    const std::string_view its = bytes_of(*each->ifa_addr);
    const bool are_loopbacks = is_loopback(*each->ifa_addr) && is_loopback(address);
    if (!its.empty() && (its == bytes_of(address) || are_loopbacks)) return each;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> interface_of(const std::string& host) {
  const ResolvedHost named = resolve(host);
  const Interfaces all = interfaces();
  for (const addrinfo* address = named.get(); address != nullptr; address = address->ai_next) {
    if (const ifaddrs* const found = interface_with(all.get(), *address->ai_addr)) return found->ifa_name;
  }
  return std::nullopt;
}

HostAddresses addresses_of(const std::string& host) {
  const ResolvedHost named = resolve(host);
  const Interfaces all = interfaces();
  HostAddresses found;
  for (const addrinfo* address = named.get(); address != nullptr; address = address->ai_next) {
    std::array<char, INET6_ADDRSTRLEN> name{};
    const std::string_view bytes = bytes_of(*address->ai_addr);
    if (bytes.empty() || inet_ntop(address->ai_family, bytes.data(), name.data(), name.size()) == nullptr) continue;
    const bool is_own = interface_with(all.get(), *address->ai_addr) != nullptr;
    (is_own ? found.own : found.others).emplace_back(name.data());
  }
  return found;
}

}  // namespace lockstep
