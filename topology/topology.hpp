// SPDX-License-Identifier: Apache-2.0
// The immutable picture of all members and the ways between them: the same value on all members. Equal machines and
// places are stored once, so that thousands of members cost a few bytes each. topology/machine/ reads the machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

// Orders links from near to far: a smaller value is a shorter way.
enum class Link : std::uint8_t { self, same_core, shared_cache, same_numa, same_package, same_node, network };

std::string_view to_string(Link link);

// Tells where a member may run and which GPUs it sees, on a machine of a given shape.
struct Place {
  int machine = 0;
  IndexSet pus;           // positions in the machine's pus: allowed by the binding and the cpuset
  double cpu_quota = 0;   // CPU time that the cgroup grants, in cores; 0: no limit
  std::vector<int> gpus;  // positions in the machine's gpus that the member sees
  bool operator==(const Place&) const = default;
};

// Gives one address of one interface of a node.
struct NicAddress {
  int nic = 0;          // position in the machine's nics
  std::string address;  // "10.0.0.1/24"
  bool operator==(const NicAddress&) const = default;
};

// Describes one node: members that can share memory.
struct Node {
  std::string host;
  int machine = 0;
  std::vector<std::string> gpu_ids;  // one per GPU of the machine; empty if unknown
  std::vector<NicAddress> addresses;
  std::string rack = {};  // a path: "row1/rack3"; empty on all nodes: unknown
  bool operator==(const Node&) const = default;
};

// Describes one member by its node and its place there.
struct Member {
  int node = 0;
  int place = 0;
  int process = 0;  // process id on its host
  bool operator==(const Member&) const = default;
};

// Holds the parts of a topology: plain and open. Topology checks them.
struct TopologyParts {
  std::vector<MachineShape> machines;
  std::vector<Place> places;
  std::vector<Node> nodes;
  std::vector<Member> members;  // by rank
  std::vector<std::string> remarks;
  std::int64_t rack_mbit_per_s = 0;  // from a rack to all others together; 0: unknown
  bool operator==(const TopologyParts&) const = default;

  // Return the position of an equal part, and append the part if there is none yet.
  int intern(const MachineShape& machine);
  int intern(const Place& place);
};

// Holds checked parts, and facts derived from them. An argument that is no rank or node throws std::out_of_range.
class Topology {
 public:
  // Throws Error bad_topology when the parts contradict each other.
  explicit Topology(TopologyParts parts);

  // Return the number of members, and the number of nodes.
  int size() const { return static_cast<int>(parts_.members.size()); }
  int node_count() const { return static_cast<int>(parts_.nodes.size()); }

  // Return a member, a node, a place, or a machine. Throw std::out_of_range for a rank or number that does not exist.
  const Member& member(int rank) const { return at(parts_.members, rank); }
  const Node& node(int node) const { return at(parts_.nodes, node); }
  const Place& place_of(int rank) const { return at(parts_.places, member(rank).place); }
  const SharedUnits& shared_units_of(int rank) const { return at(shared_units_, member(rank).place); }
  const MachineShape& machine_of(int rank) const { return machine_of_node(member(rank).node); }
  const MachineShape& machine_of_node(int node) const { return at(parts_.machines, this->node(node).machine); }
  const std::vector<MachineShape>& machines() const { return parts_.machines; }
  const std::vector<Place>& places() const { return parts_.places; }
  // Returns sentences that people should know about the origin of this picture.
  const std::vector<std::string>& remarks() const { return parts_.remarks; }

  // Return the ranks of a node, and of all nodes, in the order of the machine: node by node, package by package,
  // core by core. The launcher's order does not matter.
  std::span<const int> ranks_of_node(int node) const;
  std::span<const int> ring_order() const { return order_; }
  // Returns the rank's position in ranks_of_node().
  int index_in_node(int rank) const { return at(index_in_node_, rank); }

  // Returns the shortest way between two members.
  Link link(int a, int b) const;
  // Returns the way between GPUs of two members. They are positions in the machines' gpus.
  GpuLink gpu_link(int a, int gpu_of_a, int b, int gpu_of_b) const;
  // Return the devices nearest to the member: of the GPUs that it sees, and of all interfaces of its node.
  std::vector<int> closest_gpus(int rank) const;
  std::vector<int> closest_nics(int rank) const;

  // Returns the members that compete for one core, at the most crowded place of the node. It is 1 if each has its
  // own core, 8 if eight are bound to one. A quota counts for all members of the node that have the same.
  double members_per_core(int node) const;

  // Holds the measurements between the nodes of this job. They are no part of the picture or of comparisons, since each
  // job has its own.
  struct Network {
    double latency_us = 0;          // time of a small message, one way; 0: not measured
    double node_latency_us = 0;     // the same within a node; 0: not measured, or no node has two members
    double bytes_per_us = 0;        // from one node to another, by one connection or one per rail
    double flow_bytes_per_us = 0;   // rate of one connection; 0: not measured
    double short_bytes_per_us = 0;  // rate of a short message, which may get through faster; 0: not measured
    double crowd = 1;               // members or other programs for each core that members run on
  };
  // Gives the length, in bytes, of the message behind `short_bytes_per_us`.
  static constexpr std::size_t short_message_bytes = 16384;
  const Network& network() const { return network_; }
  // Returns the same picture with other measurements.
  Topology with_network(const Network& measured) const;

  // True if the rack of every node is known. It is known of all nodes or of none.
  bool has_racks() const { return !parts_.nodes.front().rack.empty(); }
  std::int64_t rack_mbit_per_s() const { return parts_.rack_mbit_per_s; }
  // Returns the same picture with a rack for each node, by node. If a name is empty, no node gets a rack; a remark
  // says so if others have one.
  Topology with_racks(std::vector<std::string> racks, std::int64_t mbit_per_s) const;

  // Returns the same picture with numbers[i] members in place of member i. They are threads of its process.
  Topology with_members(std::span<const int> numbers) const;

  // Returns a picture of these members alone. They get the ranks from 0 on in this order.
  Topology among(std::span<const int> ranks) const;

  std::uint64_t fingerprint() const;  // returns a hash of all parts, equal on all members
  // Returns a hash of the kinds of machines, of the members' places on them, and of racks, all without names of hosts
  // or racks. It is equal in another job that was placed alike.
  std::uint64_t kind() const;
  std::size_t size_bytes() const;  // returns the memory that this value takes

  // Convert the picture to bytes, without measurements, and back. from_bytes() throws Error bad_message or
  // bad_topology.
  Bytes to_bytes() const;
  static Topology from_bytes(std::span<const std::byte> bytes);

  // Compares the pictures, not the measurements.
  bool operator==(const Topology& other) const;

 private:
  template <class T>
  static const T& at(const std::vector<T>& all, int index) {
    return all.at(static_cast<std::size_t>(index));
  }
  void check() const;
  void check_place(const Place& place) const;
  void sort_members();

  TopologyParts parts_;
  Network network_;
  std::vector<SharedUnits> shared_units_;  // by place
  std::vector<int> order_;                 // all ranks in ring order
  std::vector<int> begins_;                // by node: the start of its ranks in order_; one more at the end
  std::vector<int> index_in_node_;
};

}  // namespace lockstep
