// SPDX-License-Identifier: Apache-2.0
// Worlds made by hand for the doctor: a healthy one, and ways to spoil it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/lockstep/doctor_checks.hpp"
#include "tools/lockstep/doctor_probes.hpp"

namespace lockstep::command {

struct World {
  std::vector<Facts> facts;
  TopologyParts parts;

  Topology topology() const { return Topology(parts); }
  Diagnosis diagnose() const { return examine(facts, topology()); }
};

inline Facts healthy_facts(int node) {
  Facts facts;
  facts.host = text("node", node);
  facts.kernel = text("boot-", node);
  facts.net_namespace = 7;
  facts.version = "0.1.0";
  facts.commit = "abc";
  facts.cuda = "13.0";
  facts.mpi = "Open MPI 4.1.4";
  facts.mpi_libraries = {"/lib/libmpi.so.40"};
  facts.open_mpi_launcher = true;
  for (const SettingRow& row : setting_rows()) facts.settings.emplace_back(row.built_in);
  facts.shared_memory = {64 * mebibyte, 64 * mebibyte, 0};
  facts.locked_memory = {16 * mebibyte, 16 * mebibyte, 0};
  facts.huge_pages = "advise";
  facts.reachable_pus = IndexSet::range(0, 3);
  facts.open_files = facts.open_files_hard = 65536;
  facts.clock_source = "tsc";
  facts.clock_ns = 25;
  facts.gpu_built = true;
  return facts;
}

// Nodes of two NUMA nodes with two cores each; every rank bound to a core, and one subnet for all.
inline World healthy(int nodes, int ranks_per_node) {
  World world;
  MachineShape shape;
  shape.model = "Processor";
  for (int pu = 0; pu < 4; ++pu) shape.pus.push_back({.os_index = pu, .core = pu, .numa = pu / 2, .package = 0});
  shape.nics = {{"docker0", 0}, {"eth0", 10000}, {"ib0", 100000}};
  const int machine = world.parts.intern(shape);
  for (int node = 0; node < nodes; ++node) {
    const std::string four = text("10.0.0.", node + 1, "/24");
    const std::string six = text("fd00::", node + 1, "/64");
    world.parts.nodes.push_back({text("node", node), machine, {}, {{1, four}, {1, six}}});
    for (int index = 0; index < ranks_per_node; ++index) {
      const int place = world.parts.intern(Place{.machine = machine, .pus = {index % 4}});
      world.parts.members.push_back({node, place, 100 + index});
      world.facts.push_back(healthy_facts(node));
    }
  }
  return world;
}

using Spoil = std::function<void(World&)>;

// Sets a field of some ranks' facts.
template <class Field, class Value>
Spoil set(const IndexSet& ranks, Field Facts::*field, Value value) {
  return [=](World& world) {
    for (const int rank : ranks.members()) world.facts.at(static_cast<std::size_t>(rank)).*field = value;
  };
}

// Puts ranks on other processors, with a quota if one is given.
inline Spoil place(const IndexSet& ranks, const IndexSet& pus, double quota = 0) {
  return [=](World& world) {
    for (const int rank : ranks.members()) {
      const Place here{.machine = 0, .pus = pus, .cpu_quota = quota};
      world.parts.members.at(static_cast<std::size_t>(rank)).place = world.parts.intern(here);
    }
  };
}

// Gives nodes an address; "%" stands for the node's number plus one. Without `more`, it is the only one.
inline Spoil address(const IndexSet& nodes, int nic, const std::string& pattern, bool more = true) {
  return [=](World& world) {
    for (const int node : nodes.members()) {
      std::string own = pattern;
      if (const auto at = own.find('%'); at != std::string::npos) own.replace(at, 1, text(node + 1));
      auto& addresses = world.parts.nodes.at(static_cast<std::size_t>(node)).addresses;
      if (!more) addresses.clear();
      addresses.push_back({nic, own});
    }
  };
}

template <class... Spoils>
Spoil spoil_all(Spoils... spoils) {
  return [=](World& world) { (spoils(world), ...); };
}

}  // namespace lockstep::command
