// SPDX-License-Identifier: Apache-2.0
// Checks a topology's parts, and answers questions about them.
#include "topology/topology.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string_view to_string(Link link) {
  constexpr std::array<std::string_view, 7> names = {"self",         "same core", "shared cache", "same numa",
                                                     "same package", "same node", "network"};
  return names.at(static_cast<std::size_t>(link));
}

namespace {

// Returns the position of an equal value, which it appends if there is none.
template <class T>
int intern_in(std::vector<T>& all, const T& value) {
  const auto found = std::ranges::find(all, value);
  if (found != all.end()) return static_cast<int>(found - all.begin());
  all.push_back(value);
  return static_cast<int>(all.size()) - 1;
}

template <class T>
bool is_index(const std::vector<T>& all, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < all.size();
}

// Throws Error bad_topology. Parts come from other processes, so they may contradict each other.
void require(bool good, std::string_view what) {
  if (!good) throw Error(Code::bad_topology, what, "run the same build of the program on all nodes");
}

}  // namespace

int TopologyParts::intern(const MachineShape& machine) { return intern_in(machines, machine); }

int TopologyParts::intern(const Place& place) { return intern_in(places, place); }

// Derives the shared units of each place and the order of the members once, so that questions only look up.
Topology::Topology(TopologyParts parts) : parts_(std::move(parts)) {
  check();
  for (const Place& place : parts_.places) {
    shared_units_.push_back(lockstep::shared_units_of(at(parts_.machines, place.machine), place.pus));
  }
  sort_members();
}

// Repeats each member as often as its number says, for threads that become members.
Topology Topology::with_members(std::span<const int> numbers) const {
  TopologyParts parts = parts_;
  parts.members.clear();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    parts.members.insert(parts.members.end(), static_cast<std::size_t>(numbers[i]), parts_.members.at(i));
  return Topology(std::move(parts)).with_network(network_);
}

// Keeps only these members and their nodes. Nodes are numbered in the order in which the ranks come to them.
Topology Topology::among(std::span<const int> ranks) const {
  TopologyParts parts = parts_;
  parts.nodes.clear();
  parts.members.clear();
  std::vector<int> now(parts_.nodes.size(), -1);  // the new number of each node
  for (const int rank : ranks) {
    Member each = member(rank);
    int& number = now.at(static_cast<std::size_t>(each.node));
    if (number < 0) {
      number = static_cast<int>(parts.nodes.size());
      parts.nodes.push_back(node(each.node));
    }
    each.node = number;
    parts.members.push_back(each);
  }
  return Topology(std::move(parts)).with_network(network_);
}

void Topology::check_place(const Place& place) const {
  require(is_index(parts_.machines, place.machine), text("a place on unknown machine ", place.machine));
  const MachineShape& machine = at(parts_.machines, place.machine);
  require(!place.pus.empty(), "a place without a hardware thread");
  require(place.pus.ranges().back().last < static_cast<int>(machine.pus.size()),
          text("a place on hardware threads ", place.pus.to_string(), " of a machine with ", machine.pus.size()));
  require(place.cpu_quota >= 0, "a negative CPU quota");
  for (const int gpu : place.gpus) require(is_index(machine.gpus, gpu), text("GPU ", gpu, " is not on the machine"));
}

void Topology::check() const {
  require(!parts_.members.empty() && !parts_.nodes.empty(), "there is no member");
  require(parts_.rack_mbit_per_s >= 0, "racks with less than nothing between them");
  for (const MachineShape& machine : parts_.machines) machine.check();
  for (const Place& place : parts_.places) check_place(place);
  for (const Node& node : parts_.nodes) {
    require(is_index(parts_.machines, node.machine), text("node ", printable(node.host), " has no machine"));
    const MachineShape& machine = at(parts_.machines, node.machine);
    require(node.rack.empty() != has_racks(), text("node ", printable(node.host), " alone is in a rack, or in none"));
    require(node.gpu_ids.empty() || node.gpu_ids.size() == machine.gpus.size(),
            text("node ", printable(node.host), " names ", node.gpu_ids.size(), " of ", machine.gpus.size(), " GPUs"));
    for (const NicAddress& address : node.addresses)
      require(is_index(machine.nics, address.nic), "an address without an interface");
  }
  std::vector<bool> used(parts_.nodes.size());
  for (int rank = 0; rank < size(); ++rank) {
    const Member& each = member(rank);
    require(is_index(parts_.nodes, each.node), text("rank ", rank, " is on unknown node ", each.node));
    require(is_index(parts_.places, each.place), text("rank ", rank, " has no place"));
    require(place_of(rank).machine == node(each.node).machine, text("rank ", rank, " has a place of another machine"));
    used.at(static_cast<std::size_t>(each.node)) = true;
  }
  require(std::ranges::find(used, false) == used.end(), "a node without members");
}

// Sorts the members by node and by position in the machine. That order is the ring.
void Topology::sort_members() {
  order_.resize(static_cast<std::size_t>(size()));
  std::iota(order_.begin(), order_.end(), 0);
  // pus are in the machine's order, so the first one of a place tells its position.
  const auto key = [&](int rank) { return std::tuple(member(rank).node, place_of(rank).pus.first(), rank); };
  std::ranges::sort(order_, {}, key);
  index_in_node_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const bool begins = i == 0 || member(order_[i]).node != member(order_[i - 1]).node;
    if (begins) begins_.push_back(static_cast<int>(i));
    index_in_node_.at(static_cast<std::size_t>(order_[i])) = static_cast<int>(i) - begins_.back();
  }
  begins_.push_back(size());
}

std::span<const int> Topology::ranks_of_node(int node) const {
  const int begin = at(begins_, node);
  const int end = at(begins_, node + 1);
  return std::span(order_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

// Here, because the comparisons of all parts would be compiled with every program otherwise.
bool Topology::operator==(const Topology& other) const { return parts_ == other.parts_; }

// Looks for the smallest part that both members share.
Link Topology::link(int a, int b) const {
  if (a == b) return Link::self;
  if (member(a).node != member(b).node) return Link::network;
  const SharedUnits& one = shared_units_of(a);
  const SharedUnits& two = shared_units_of(b);
  const auto share = [&](int SharedUnits::*what) { return one.*what != none && one.*what == two.*what; };
  if (share(&SharedUnits::core)) return Link::same_core;
  if (share(&SharedUnits::l2) || share(&SharedUnits::l3)) return Link::shared_cache;
  if (share(&SharedUnits::numa)) return Link::same_numa;
  if (share(&SharedUnits::package)) return Link::same_package;
  return Link::same_node;
}

GpuLink Topology::gpu_link(int a, int gpu_of_a, int b, int gpu_of_b) const {
  if (member(a).node != member(b).node) return GpuLink::network;
  return machine_of(a).gpu_link(gpu_of_a, gpu_of_b);
}

namespace {

// Returns 0 in the same NUMA node, 1 in the same package or if the machine does not say, 2 beyond. A NUMA node may span
// packages, as in a machine described by packages alone. It then brings nothing of another package near.
template <class Device>
int distance(const SharedUnits& units, const Device& device) {
  const bool elsewhere = device.package != none && units.package != none && device.package != units.package;
  if (elsewhere) return 2;
  return device.numa != none && device.numa == units.numa ? 0 : 1;
}

// Returns the devices at the smallest distance, of those that the place sees.
template <class Device>
std::vector<int> nearest_devices(const SharedUnits& units, const std::vector<Device>& devices,
                                 const std::vector<int>& seen) {
  std::vector<int> near;
  int best = 3;
  for (const int each : seen) {
    const int far = distance(units, devices.at(static_cast<std::size_t>(each)));
    if (far < best) near.clear();
    best = std::min(best, far);
    if (far == best) near.push_back(each);
  }
  return near;
}

}  // namespace

std::vector<int> Topology::closest_gpus(int rank) const {
  return nearest_devices(shared_units_of(rank), machine_of(rank).gpus, place_of(rank).gpus);
}

std::vector<int> Topology::closest_nics(int rank) const {
  const auto& nics = machine_of(rank).nics;
  std::vector<int> all(nics.size());
  std::iota(all.begin(), all.end(), 0);
  return nearest_devices(shared_units_of(rank), nics, all);
}

Topology Topology::with_network(const Network& measured) const {
  Topology all = *this;
  all.network_ = measured;
  return all;
}

// Racks are used only if those of all nodes are known, because levels need every node.
Topology Topology::with_racks(std::vector<std::string> racks, std::int64_t mbit_per_s) const {
  TopologyParts parts = parts_;
  std::vector<std::string> missing;
  for (std::size_t node = 0; node < parts.nodes.size(); ++node) {
    if (racks.at(node).empty()) missing.push_back(printable(parts.nodes[node].host));
  }
  const bool is_known = missing.empty();
  constexpr std::size_t most = 4;  // hosts named in one remark
  if (!is_known && missing.size() < parts.nodes.size()) {
    const std::size_t more = missing.size() - std::min(most, missing.size());
    missing.resize(std::min(most, missing.size()));
    if (more > 0) missing.push_back(text(more, " more"));
    parts.remarks.push_back(text("the rack of ", join(missing, ", "), " is not known, so racks are not used"));
  }
  for (std::size_t node = 0; node < parts.nodes.size(); ++node)
    parts.nodes[node].rack = is_known ? std::move(racks[node]) : std::string();
  parts.rack_mbit_per_s = is_known ? mbit_per_s : 0;
  return Topology(std::move(parts)).with_network(network_);
}

// Returns the largest crowd of the node: members per core of a place, or members per core of a CPU quota.
double Topology::members_per_core(int node) const {
  std::map<int, int> crowd;      // members by place
  std::map<double, int> groups;  // members by quota: equal quotas on a node count as one control group
  for (const int rank : ranks_of_node(node)) {
    ++crowd[member(rank).place];
    if (place_of(rank).cpu_quota > 0) ++groups[place_of(rank).cpu_quota];
  }
  std::map<int, IndexSet> cores;  // by place: two hardware threads of one core are one core
  for (const auto& [place, count] : crowd) {
    for (const int pu : at(parts_.places, place).pus.members())
      cores[place].insert(at(machine_of_node(node).pus, pu).core);
  }
  double most = 0;
  for (const auto& [quota, count] : groups) most = std::max(most, count / quota);
  for (const auto& [place, count] : crowd) {
    int inside = 0;  // members that can run nowhere but here
    for (const auto& [other, others] : crowd) {
      if (cores[place].contains(cores[other])) inside += others;
    }
    most = std::max(most, inside / static_cast<double>(cores[place].size()));
  }
  return most;
}

std::size_t Topology::size_bytes() const {
  std::size_t all = sizeof *this;
  for (const MachineShape& machine : parts_.machines) all += machine.size_bytes();
  for (const Place& place : parts_.places) {
    all += sizeof place + place.pus.ranges().capacity() * sizeof(IndexRange) + place.gpus.capacity() * sizeof(int);
  }
  for (const Node& node : parts_.nodes) {
    all += sizeof node + node.host.capacity() + node.rack.capacity() + node.gpu_ids.capacity() * sizeof(std::string) +
           node.addresses.capacity() * sizeof(NicAddress);
    for (const std::string& gpu : node.gpu_ids) all += gpu.capacity();
    for (const NicAddress& address : node.addresses) all += address.address.capacity();
  }
  all += parts_.members.capacity() * sizeof(Member) + shared_units_.capacity() * sizeof(SharedUnits);
  return all + (order_.capacity() + begins_.capacity() + index_in_node_.capacity()) * sizeof(int);
}

std::uint64_t Topology::fingerprint() const { return hash(to_bytes()); }

// Hashes machines and places without names of hosts, so that equal jobs on other hosts have the same kind.
std::uint64_t Topology::kind() const {
  Writer writer;
  for (const Member& each : parts_.members) {
    const Place& place = at(parts_.places, each.place);
    writer.put(each.node).put(place.pus).put(place.cpu_quota).put(place.gpus.size());
    for (const int gpu : place.gpus) writer.put(gpu);
  }
  for (int node = 0; node < node_count(); ++node) machine_of_node(node).write(writer);
  std::map<std::string_view, int> racks;  // by name, numbered as nodes come to them
  for (const Node& node : parts_.nodes) {
    if (!node.rack.empty()) writer.put(racks.try_emplace(node.rack, static_cast<int>(racks.size())).first->second);
  }
  return hash(writer.take());
}

}  // namespace lockstep
