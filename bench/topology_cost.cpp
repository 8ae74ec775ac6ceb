// SPDX-License-Identifier: Apache-2.0
// Measures the cost of the topology of a large machine: the time to build it and to pass it on, and its bytes for each
// member. It prints the figures. The exit code is 3 if they miss the bounds of ARCHITECTURE.md.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/group.hpp"
#include "topology/machine/read_machine.hpp"

int main() {
  using namespace lockstep;
  using Clock = std::chrono::steady_clock;
  constexpr std::string_view description = "512 x node(package:2 numa:2 l3:1 core:16 pu:2 gpu:8 nic:4x100G)";
  std::vector<double> build_ms;
  std::vector<double> read_ms;
  std::size_t bytes = 0;
  int members = 0;
  for (int i = 0; i < 11; ++i) {
    const auto begin = Clock::now();
    const Topology topology = topology_from_description(description, 8);
    const auto built = Clock::now();
    const Topology copy = Topology::from_bytes(topology.to_bytes());
    const auto read = Clock::now();
    if (copy != topology) return static_cast<int>(Exit::wrong_data);
    build_ms.push_back(std::chrono::duration<double, std::milli>(built - begin).count());
    read_ms.push_back(std::chrono::duration<double, std::milli>(read - built).count());
    bytes = topology.size_bytes();
    members = topology.size();
  }
  std::ranges::sort(build_ms);
  std::ranges::sort(read_ms);
  const double per_member = static_cast<double>(bytes) / members;
  std::cout << description << "\n"
            << text("members ", members, ", ", per_member, " bytes each; limit 1024\n")
            << text("build   median ", build_ms[5], " ms, worst of 11 ", build_ms.back(), " ms; limit 500\n")
            << text("pass on median ", read_ms[5], " ms, worst of 11 ", read_ms.back(), " ms\n");
  const bool good = per_member < 1024 && build_ms.back() < 500;
  return static_cast<int>(good ? Exit::success : Exit::gate);
}
