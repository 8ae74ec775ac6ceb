// SPDX-License-Identifier: Apache-2.0
// Names addresses as gRPC does.
#include "runtime/rpc/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

namespace lockstep::rpc::detail {

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

std::pair<std::string, std::uint16_t> name_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &four.sin_addr, host.data(), host.size());
    return {host.data(), ntohs(four.sin_port)};
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  constexpr std::size_t of_prefix = 12;  // gRPC names an IPv4 address in IPv6 form as IPv4.
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
    ::inet_ntop(AF_INET, six.sin6_addr.s6_addr + of_prefix, host.data(), host.size());
  else
    ::inet_ntop(AF_INET6, &six.sin6_addr, host.data(), host.size());
  return {host.data(), ntohs(six.sin6_port)};
}

}  // namespace lockstep::rpc::detail
