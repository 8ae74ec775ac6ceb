// SPDX-License-Identifier: Apache-2.0
// Converts a topology to bytes and back, so that rank 0's picture becomes that of all. Reading checks everything.
#include "topology/base/error.hpp"
#include "topology/topology.hpp"

namespace lockstep {
namespace {

void write(Writer& writer, const Place& place) {
  writer.put(place.machine).put(place.pus).put(place.cpu_quota);
  writer.put(static_cast<std::uint64_t>(place.gpus.size()));
  for (const int gpu : place.gpus) writer.put(gpu);
}

Place read_place(Reader& reader) {
  Place place;
  place.machine = reader.get<int>();
  place.pus = reader.get_set();
  place.cpu_quota = reader.get<double>();
  place.gpus.resize(reader.get_count(sizeof(int)));
  for (int& gpu : place.gpus) gpu = reader.get<int>();
  return place;
}

void write(Writer& writer, const Node& node) {
  writer.put(node.host).put(node.machine).put(node.rack);
  writer.put(static_cast<std::uint64_t>(node.gpu_ids.size()));
  for (const std::string& gpu : node.gpu_ids) writer.put(gpu);
  writer.put(static_cast<std::uint64_t>(node.addresses.size()));
  for (const NicAddress& each : node.addresses) writer.put(each.nic).put(each.address);
}

Node read_node(Reader& reader) {
  Node node;
  node.host = reader.get_string();
  node.machine = reader.get<int>();
  node.rack = reader.get_string();
  node.gpu_ids.resize(reader.get_count(sizeof(std::uint64_t)));
  for (std::string& gpu : node.gpu_ids) gpu = reader.get_string();
  node.addresses.resize(reader.get_count(sizeof(int) + sizeof(std::uint64_t)));
  for (NicAddress& each : node.addresses) {
    each.nic = reader.get<int>();
    each.address = reader.get_string();
  }
  return node;
}

}  // namespace

Bytes Topology::to_bytes() const {
  Writer writer;
  writer.put(static_cast<std::uint64_t>(parts_.machines.size()));
  for (const MachineShape& machine : parts_.machines) machine.write(writer);
  writer.put(static_cast<std::uint64_t>(parts_.places.size()));
  for (const Place& place : parts_.places) write(writer, place);
  writer.put(static_cast<std::uint64_t>(parts_.nodes.size()));
  for (const Node& node : parts_.nodes) write(writer, node);
  writer.put(static_cast<std::uint64_t>(parts_.members.size()));
  for (const Member& each : parts_.members) writer.put(each.node).put(each.place).put(each.process);
  writer.put(static_cast<std::uint64_t>(parts_.remarks.size()));
  for (const std::string& remark : parts_.remarks) writer.put(remark);
  writer.put(parts_.rack_mbit_per_s);
  return writer.take();
}

Topology Topology::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  TopologyParts parts;
  for (std::size_t left = reader.get_count(4 * sizeof(std::uint64_t)); left > 0; --left) {
    parts.machines.push_back(MachineShape::read(reader));
  }
  for (std::size_t left = reader.get_count(3 * sizeof(std::uint64_t)); left > 0; --left) {
    parts.places.push_back(read_place(reader));
  }
  for (std::size_t left = reader.get_count(4 * sizeof(std::uint64_t)); left > 0; --left) {
    parts.nodes.push_back(read_node(reader));
  }
  parts.members.resize(reader.get_count(3 * sizeof(int)));
  for (Member& each : parts.members) {
    for (int* field : {&each.node, &each.place, &each.process}) *field = reader.get<int>();
  }
  for (std::size_t left = reader.get_count(sizeof(std::uint64_t)); left > 0; --left) {
    parts.remarks.push_back(reader.get_string());
  }
  parts.rack_mbit_per_s = reader.get<std::int64_t>();
  reader.expect_done();
  return Topology(std::move(parts));
}

}  // namespace lockstep
