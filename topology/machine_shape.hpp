// SPDX-License-Identifier: Apache-2.0
// The shape of one node: processors and what they share, GPUs, network interfaces. A value without
// identity (no host name, address or GPU serial), so that equal nodes are equal and stored once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

inline constexpr int none = -1;  // "this machine has none, or does not say"

// One hardware thread. The numbers are positions within the machine, counted in its own order.
struct Pu {
  int os_index = 0;
  int core = 0;
  int l2 = none;
  int l3 = none;
  int numa = none;
  int package = none;
  bool operator==(const Pu&) const = default;
};

struct Gpu {
  std::string name;
  std::string bus;  // "0000:3b:00.0"; empty if unknown
  int numa = none;
  int package = none;
  bool operator==(const Gpu&) const = default;
};

struct Nic {
  std::string name;
  std::int64_t mbit_per_s = 0;  // 0: unknown
  int numa = none;
  int package = none;
  bool operator==(const Nic&) const = default;
};

// peer: they reach each other's memory without the host; whether by NVLink or by PCIe nobody said.
enum class GpuLink : std::uint8_t { same, nvlink, pcie, via_host, network, peer };

std::string_view to_string(GpuLink link);

struct MachineShape {
  std::string model;
  std::uint64_t memory_gib = 0;
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;
  std::vector<Pu> pus;  // in the machine's order: neighbours here are neighbours there
  std::vector<Gpu> gpus;
  std::vector<GpuLink> gpu_links;  // gpus × gpus, row by row
  std::vector<Nic> nics;

  bool operator==(const MachineShape&) const = default;

  int packages() const { return distinct(&Pu::package); }
  int numas() const { return distinct(&Pu::numa); }
  int cores() const { return distinct(&Pu::core); }
  int l3s() const { return distinct(&Pu::l3); }
  GpuLink gpu_link(int a, int b) const;

  // Throws Error bad_topology, naming what contradicts itself.
  void check() const;

  void write(Writer& writer) const;
  static MachineShape read(Reader& reader);
  std::size_t size_bytes() const;

 private:
  int distinct(int Pu::*what) const;
};

// What a set of hardware threads shares: the one core, cache, NUMA node, package that holds all of it.
struct SharedUnits {
  int core = none;
  int l2 = none;
  int l3 = none;
  int numa = none;
  int package = none;
  bool operator==(const SharedUnits&) const = default;
};

// `pus` are positions in `machine.pus`.
SharedUnits shared_units_of(const MachineShape& machine, const IndexSet& pus);

}  // namespace lockstep
