// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this machine that could carry traffic between nodes. They are up, with an address or an
// InfiniBand port; the loopback is never one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

// Describes an interface and its addresses, which equal machines do not share.
struct LocalNic {
  Nic nic;
  std::vector<std::string> addresses;  // "10.0.0.1/24"
};

// Returns the interfaces sorted by name. `sys` is the folder of the kernel's devices: /sys, except in tests. Throws
// Error system.
std::vector<LocalNic> read_nics(const std::string& sys = "/sys");

// Returns the interface of this machine that has an address of that host, or nothing. It may ask a name server, and
// wait for it.
std::optional<std::string> interface_of(const std::string& host);

// Holds the addresses of a host as numbers: those that this machine has itself, and the others.
struct HostAddresses {
  std::vector<std::string> own;
  std::vector<std::string> others;
};
// Looks up a host. It may ask a name server, and wait for it. Both lists are empty for an unknown name.
HostAddresses addresses_of(const std::string& host);

// Returns Mbit/s: "100 Gb/sec (4X EDR)" is 100000. Returns nothing for another form.
std::optional<std::int64_t> parse_infiniband_rate(std::string_view line);

}  // namespace lockstep
