// SPDX-License-Identifier: Apache-2.0
// Writes a topology as JSON, element by element, so that a large one never exists as a tree in memory.
#include "tools/lockstep/topo_json.hpp"

#include <functional>
#include <nlohmann/json.hpp>

#include "topology/base/text.hpp"
#include "topology/group.hpp"

namespace lockstep::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr int topo_schema = 1;

Json position(int index) { return index == none ? Json(nullptr) : Json(index); }

// Replaces bytes that are not UTF-8, which JSON cannot hold. Names come from other machines.
std::string name(const std::string& any) { return printable(any, 1000); }

Json names_json(const std::vector<std::string>& all) {
  Json list = Json::array();
  for (const std::string& each : all) list.push_back(name(each));
  return list;
}

Json device(const std::string& what, int numa, int package) {
  return {{"name", name(what)}, {"numa", position(numa)}, {"package", position(package)}};
}

Json to_json(const MachineShape& machine) {
  Json pus = Json::array();
  for (const Pu& pu : machine.pus) {
    pus.push_back({{"os_index", pu.os_index},
                   {"core", pu.core},
                   {"l2", position(pu.l2)},
                   {"l3", position(pu.l3)},
                   {"numa", position(pu.numa)},
                   {"package", position(pu.package)}});
  }
  Json gpus = Json::array();
  Json links = Json::array();
  const int count = static_cast<int>(machine.gpus.size());
  for (int a = 0; a < count; ++a) {
    const Gpu& gpu = machine.gpus[static_cast<std::size_t>(a)];
    gpus.push_back(device(gpu.name, gpu.numa, gpu.package));
    gpus.back()["bus"] = name(gpu.bus);
    Json row = Json::array();
    for (int b = 0; b < count; ++b) row.push_back(to_string(machine.gpu_link(a, b)));
    links.push_back(std::move(row));
  }
  Json nics = Json::array();
  for (const Nic& nic : machine.nics) {
    nics.push_back(device(nic.name, nic.numa, nic.package));
    nics.back()["mbit_per_s"] = nic.mbit_per_s;
  }
  return {{"model", name(machine.model)},  {"memory_gib", machine.memory_gib},
          {"l2_bytes", machine.l2_bytes},  {"l3_bytes", machine.l3_bytes},
          {"pus", std::move(pus)},         {"gpus", std::move(gpus)},
          {"gpu_links", std::move(links)}, {"nics", std::move(nics)}};
}

Json to_json(const Place& place) {
  return {
      {"machine", place.machine}, {"pus", place.pus.members()}, {"cpu_quota", place.cpu_quota}, {"gpus", place.gpus}};
}

Json to_json(const std::string& remark) { return name(remark); }

Json node_json(const Topology& topology, int index) {
  const Node& node = topology.node(index);
  Json addresses = Json::array();
  for (const NicAddress& each : node.addresses)
    addresses.push_back({{"nic", each.nic}, {"address", name(each.address)}});
  const auto ranks = topology.ranks_of_node(index);
  return {{"host", name(node.host)},
          {"rack", node.rack.empty() ? Json(nullptr) : Json(name(node.rack))},
          {"machine", node.machine},
          {"members_per_core", topology.members_per_core(index)},
          {"gpu_ids", names_json(node.gpu_ids)},
          {"addresses", std::move(addresses)},
          {"ranks", std::vector<int>(ranks.begin(), ranks.end())}};
}

Json member_json(const Topology& topology, int rank) {
  const Member& member = topology.member(rank);
  return {{"rank", rank},
          {"node", member.node},
          {"place", member.place},
          {"pid", member.process},
          {"index_in_node", topology.index_in_node(rank)},
          {"closest_gpus", topology.closest_gpus(rank)},
          {"closest_nics", topology.closest_nics(rank)}};
}

Json order_json(const Topology& topology) {
  const auto ring = topology.ring_order();
  Json rails = Json::array();
  for (int rail = 0; rail < rail_count(topology); ++rail) rails.push_back(rail_group(topology, rail, none).ranks());
  return {{"ring", std::vector<int>(ring.begin(), ring.end())},
          {"leaders", leader_group(topology, none).ranks()},
          {"rails", std::move(rails)}};
}

// Writes a line for each element, so that a difference of two files shows the element that differs. Never more than one
// element is a tree in memory.
std::string list(int count, const std::function<Json(int)>& element) {
  if (count == 0) return "[]";
  std::string all = "[";
  for (int i = 0; i < count; ++i) all += text(i == 0 ? "\n    " : ",\n    ", element(i).dump());
  return all + "\n  ]";
}

template <class T>
std::string list(const std::vector<T>& elements) {
  return list(static_cast<int>(elements.size()),
              [&](int i) { return to_json(elements.at(static_cast<std::size_t>(i))); });
}

}  // namespace

std::string topo_json(const Topology& topology) {
  const auto node = [&](int index) { return node_json(topology, index); };
  const auto member = [&](int rank) { return member_json(topology, rank); };
  return text("{\n  \"schema\": ", topo_schema, ",\n  \"members\": ", topology.size(),
              ",\n  \"nodes\": ", topology.node_count(), ",\n  \"fingerprint\": \"",
              hexadecimal(topology.fingerprint()), "\",\n  \"machine_shapes\": ", list(topology.machines()),
              ",\n  \"places\": ", list(topology.places()), ",\n  \"node_list\": ", list(topology.node_count(), node),
              ",\n  \"member_list\": ", list(topology.size(), member), ",\n  \"order\": ", order_json(topology).dump(),
              ",\n  \"remarks\": ", list(topology.remarks()), "\n}\n");
}

}  // namespace lockstep::command
