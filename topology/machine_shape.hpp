// SPDX-License-Identifier: Apache-2.0
// The shape of one node: processors and the parts that they share, GPUs, network interfaces. It has no host name,
// address or serial number, so that equal nodes are equal and stored once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

inline constexpr int none = -1;  // means that the machine has none, or does not say

// Describes one hardware thread. `os_index` is the system's number; the others are positions in the machine, in its
// own order.
struct Pu {
  int os_index = 0;
  int core = 0;
  int l2 = none;
  int l3 = none;
  int numa = none;
  int package = none;
  bool operator==(const Pu&) const = default;
};

// Describes one GPU, and the place that it is attached to.
struct Gpu {
  std::string name;
  std::string bus;  // "0000:3b:00.0"; empty if unknown
  int numa = none;
  int package = none;
  bool operator==(const Gpu&) const = default;
};

// Describes one network interface, and the place that it is attached to.
struct Nic {
  std::string name;
  std::int64_t mbit_per_s = 0;  // 0: unknown
  int numa = none;
  int package = none;
  bool operator==(const Nic&) const = default;
};

// Names the way between two GPUs. `peer` means that they reach each other's memory without the host, by NVLink or by
// PCIe.
enum class GpuLink : std::uint8_t { same, nvlink, pcie, via_host, network, peer };

std::string_view to_string(GpuLink link);

// Describes a machine as a value.
struct MachineShape {
  std::string model;
  std::uint64_t memory_gib = 0;
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;
  std::vector<Pu> pus;  // neighbours here are neighbours in the machine
  std::vector<Gpu> gpus;
  std::vector<GpuLink> gpu_links;  // gpus x gpus, row by row
  std::vector<Nic> nics;

  bool operator==(const MachineShape&) const = default;

  // Return the number of distinct packages, NUMA nodes, cores and L3 caches. Hardware threads without one do not
  // count.
  int packages() const { return distinct(&Pu::package); }
  int numas() const { return distinct(&Pu::numa); }
  int cores() const { return distinct(&Pu::core); }
  int l3s() const { return distinct(&Pu::l3); }
  // Returns the way between two GPUs, by their positions. Throws std::out_of_range if the table has no such entry.
  GpuLink gpu_link(int a, int b) const;

  // Throws Error bad_topology with the contradiction: no processor, equal numbers, or a table of links that does
  // not fit.
  void check() const;

  // Writes the shape for other members.
  void write(Writer& writer) const;
  // Reads and checks a shape. Throws Error bad_message or bad_topology.
  static MachineShape read(Reader& reader);
  // Returns the memory that this value takes, in bytes, without its names.
  std::size_t size_bytes() const;

 private:
  int distinct(int Pu::*what) const;
};

// Names the units that hold all of a set of hardware threads: the one core, caches, NUMA node and package. `none` if
// there is no such unit.
struct SharedUnits {
  int core = none;
  int l2 = none;
  int l3 = none;
  int numa = none;
  int package = none;
  bool operator==(const SharedUnits&) const = default;
};

// Returns the parts that all of these hardware threads share. `pus` are positions in `machine.pus`. An empty set shares
// nothing.
SharedUnits shared_units_of(const MachineShape& machine, const IndexSet& pus);

}  // namespace lockstep
