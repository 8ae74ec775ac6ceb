// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this machine that could carry traffic between nodes: up, with an address
// or an InfiniBand port; never the loopback.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

struct LocalNic {
  Nic nic;
  std::vector<std::string> addresses;  // "10.0.0.1/24"
};

// Sorted by name. `sys` is where the kernel shows its devices: /sys, except in tests.
std::vector<LocalNic> read_nics(const std::string& sys = "/sys");

// The interface of this machine that has an address of the host of that name; nothing: none has. May ask a name server.
std::optional<std::string> interface_of(const std::string& host);

// The addresses of the host of that name, as numbers: first those that this machine has itself. May ask a name server.
struct HostAddresses {
  std::vector<std::string> own;
  std::vector<std::string> others;
};
HostAddresses addresses_of(const std::string& host);

// "100 Gb/sec (4X EDR)" is 100000.
std::optional<std::int64_t> parse_infiniband_rate(std::string_view line);

}  // namespace lockstep
