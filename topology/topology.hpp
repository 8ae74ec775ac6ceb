// SPDX-License-Identifier: Apache-2.0
// The immutable picture of who is here and what lies between: the same value on all members. What is
// equal is stored once (machines, places), so that thousands of members cost a few bytes each.
// Reading the machine is not done here but in topology/machine/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep {

// From near to far: a smaller value is a shorter way.
enum class Link : std::uint8_t { self, same_core, shared_cache, same_numa, same_package, same_node, network };

std::string_view to_string(Link link);

// Where a member may run and what it may use, on a machine of a given shape.
struct Place {
  int machine = 0;
  IndexSet pus;           // positions in the machine's pus: what the binding and the cpuset allow
  double cpu_quota = 0;   // cores' worth of time that the cgroup grants; 0: no limit
  std::vector<int> gpus;  // positions in the machine's gpus that the member sees
  bool operator==(const Place&) const = default;
};

struct NicAddress {
  int nic = 0;          // position in the machine's nics
  std::string address;  // "10.0.0.1/24"
  bool operator==(const NicAddress&) const = default;
};

struct Node {
  std::string host;
  int machine = 0;
  std::vector<std::string> gpu_ids;  // one per GPU of the machine; empty if unknown
  std::vector<NicAddress> addresses;
  std::string rack = {};  // what it stands in, a path: "row1/rack3"; empty on all nodes: nobody has said
  bool operator==(const Node&) const = default;
};

struct Member {
  int node = 0;
  int place = 0;
  int process = 0;  // process id on its host
  bool operator==(const Member&) const = default;
};

// What a topology is made of: plain and open; Topology checks it and closes it.
struct TopologyParts {
  std::vector<MachineShape> machines;
  std::vector<Place> places;
  std::vector<Node> nodes;
  std::vector<Member> members;  // by rank
  std::vector<std::string> remarks;
  std::int64_t rack_mbit_per_s = 0;  // from a rack to all others together; 0: nobody has said
  bool operator==(const TopologyParts&) const = default;

  // The position of an equal one, appended if there is none yet.
  int intern(const MachineShape& machine);
  int intern(const Place& place);
};

class Topology {
 public:
  // Throws Error bad_topology when the parts contradict each other.
  explicit Topology(TopologyParts parts);

  int size() const { return static_cast<int>(parts_.members.size()); }
  int node_count() const { return static_cast<int>(parts_.nodes.size()); }

  const Member& member(int rank) const { return at(parts_.members, rank); }
  const Node& node(int node) const { return at(parts_.nodes, node); }
  const Place& place_of(int rank) const { return at(parts_.places, member(rank).place); }
  const SharedUnits& shared_units_of(int rank) const { return at(shared_units_, member(rank).place); }
  const MachineShape& machine_of(int rank) const { return machine_of_node(member(rank).node); }
  const MachineShape& machine_of_node(int node) const { return at(parts_.machines, this->node(node).machine); }
  const std::vector<MachineShape>& machines() const { return parts_.machines; }
  const std::vector<Place>& places() const { return parts_.places; }
  // What people should know about how this picture came to be.
  const std::vector<std::string>& remarks() const { return parts_.remarks; }

  // Ranks of a node, and of all nodes, in the order of the machine: node by node, package by package,
  // core by core, whatever order the launcher gave.
  std::span<const int> ranks_of_node(int node) const;
  std::span<const int> ring_order() const { return order_; }
  // Position of the rank among ranks_of_node.
  int index_in_node(int rank) const { return at(index_in_node_, rank); }
  bool equal_nodes() const;  // the same number of members on every node

  Link link(int a, int b) const;
  // Between two GPUs of two members (positions in their machines' gpus).
  GpuLink gpu_link(int a, int gpu_of_a, int b, int gpu_of_b) const;
  // What lies nearest to the member: GPUs that it sees, interfaces of its node.
  std::vector<int> near_gpus(int rank) const;
  std::vector<int> near_nics(int rank) const;

  // Members that compete for one core, at the most crowded place of the node: 1 when each has its own
  // core, 8 when eight are bound to one. A quota counts for all members of the node that have the same.
  double members_per_core(int node) const;

  // What was measured between nodes of this job. Not a part of the picture: it is another one in each job.
  struct Network {
    double latency_us = 0;          // of a small message; 0: nobody has measured
    double near_us = 0;             // the same within a node; 0: nobody has a neighbour
    double bytes_per_us = 0;        // of a node, to another one, by one connection or one for each rail
    double flow_bytes_per_us = 0;   // of one connection; 0: nobody has measured
    double short_bytes_per_us = 0;  // of a single short message, which may get through faster; 0: nobody has measured
    double crowd = 1;               // members, or other programs, for each core that members run on
  };
  static constexpr std::size_t short_message_bytes = 16384;
  const Network& network() const { return network_; }
  Topology with_network(const Network& measured) const;

  bool has_racks() const { return !parts_.nodes.front().rack.empty(); }
  std::int64_t rack_mbit_per_s() const { return parts_.rack_mbit_per_s; }
  // Of every node what it stands in. If that is not known of all, it is of none, and remarked.
  Topology with_racks(std::vector<std::string> racks, std::int64_t mbit_per_s) const;

  // The same with so many members where each one was: threads of its process.
  Topology with_members(std::span<const int> numbers) const;

  // Of these members alone, who get the ranks from 0 on in this order.
  Topology among(std::span<const int> ranks) const;

  std::uint64_t fingerprint() const;  // equal on all members
  // Of the kinds of machines, and of where members are on them, whatever the hosts are called: equal in another job
  // that was placed alike.
  std::uint64_t kind() const;
  std::size_t size_bytes() const;  // memory that this value takes

  Bytes to_bytes() const;
  static Topology from_bytes(std::span<const std::byte> bytes);

  bool operator==(const Topology& other) const { return parts_ == other.parts_; }

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
  std::vector<int> begins_;                // by node: where its ranks begin in order_; one more at the end
  std::vector<int> index_in_node_;
};

}  // namespace lockstep
