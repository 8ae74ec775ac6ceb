// SPDX-License-Identifier: Apache-2.0
// Gathers a report from each member, and assembles the topology from all of them.
#include "topology/machine/discover.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "topology/base/cgroup.hpp"
#include "topology/base/error.hpp"
#include "topology/machine/network.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/share.hpp"
#include "topology/racks.hpp"

namespace lockstep {
namespace {

struct ReportedGpu {
  VisibleGpu gpu;
  int numa = none;
  int package = none;
};

// Holds one member's description of itself.
struct Report {
  std::string host;
  int process = 0;
  IndexSet pus;
  double cpu_quota = 0;
  std::vector<ReportedGpu> gpus;
  std::vector<NicAddress> addresses;
  Rack rack = {};
};

Bytes write(const Report& report) {
  Writer writer;
  writer.put(report.host).put(report.process).put(report.pus).put(report.cpu_quota);
  writer.put(static_cast<std::uint64_t>(report.gpus.size()));
  for (const auto& [gpu, numa, package] : report.gpus) {
    writer.put(gpu.name).put(gpu.id).put(gpu.bus).put(gpu.memory_bytes).put(numa).put(package);
    writer.put(static_cast<std::uint64_t>(gpu.reaches.size()));
    for (const auto& [id, reaches] : gpu.reaches) writer.put(id).put(static_cast<std::uint8_t>(reaches ? 1 : 0));
  }
  writer.put(static_cast<std::uint64_t>(report.addresses.size()));
  for (const NicAddress& each : report.addresses) writer.put(each.nic).put(each.address);
  writer.put(report.rack.name).put(report.rack.mbit_per_s);
  return writer.take();
}

Report read_report(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Report report;
  report.host = reader.get_string();
  report.process = reader.get<int>();
  report.pus = reader.get_set();
  report.cpu_quota = reader.get<double>();
  report.gpus.resize(reader.get_count(4 * sizeof(std::uint64_t)));
  for (auto& [gpu, numa, package] : report.gpus) {
    gpu.name = reader.get_string();
    gpu.id = reader.get_string();
    gpu.bus = reader.get_string();
    gpu.memory_bytes = reader.get<std::uint64_t>();
    numa = reader.get<int>();
    package = reader.get<int>();
    for (std::size_t more = reader.get_count(sizeof(std::uint64_t)); more > 0; --more) {
      const std::string id = reader.get_string();
      gpu.reaches[id] = reader.get<std::uint8_t>() != 0;
    }
  }
  report.addresses.resize(reader.get_count(sizeof(int) + sizeof(std::uint64_t)));
  for (NicAddress& each : report.addresses) {
    each.nic = reader.get<int>();
    each.address = reader.get_string();
  }
  report.rack.name = reader.get_string();
  report.rack.mbit_per_s = reader.get<std::int64_t>();
  reader.expect_done();
  return report;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Report report_self(const MachineShape& shape, const VisibleGpus& devices) {
  Report report;
  report.host = host_name();
  report.process = static_cast<int>(::getpid());
  report.pus = allowed_pus(shape);
  report.cpu_quota = cpu_quota().value_or(0);
  for (const VisibleGpu& gpu : devices.gpus) {
    const auto known = std::ranges::find(shape.gpus, gpu.bus, &Gpu::bus);
    const bool found = known != shape.gpus.end();
    report.gpus.push_back({gpu, found ? known->numa : none, found ? known->package : none});
  }
  const auto nics = read_nics();
  for (const LocalNic& nic : nics) {
    const auto known = std::ranges::find(shape.nics, nic.nic.name, &Nic::name);
    if (known == shape.nics.end()) continue;
    const int index = static_cast<int>(known - shape.nics.begin());
    for (const std::string& address : nic.addresses) report.addresses.push_back({index, address});
  }
  return report;
}

// Holds the machines of all nodes: each member's hash, and the shape for each hash.
struct Machines {
  std::vector<std::uint64_t> hash_of;
  std::map<std::uint64_t, MachineShape> shapes;
};

// Gathers the shapes of the machines. The lowest rank of a node reads for all of it: hwloc takes milliseconds of a core
// and runs on each core in turn, so ranks that read at once would wait for each other. A shape is sent once.
Machines gather_machines(Exchange& exchange, const SharedNodes& shared) {
  const int me = exchange.rank();
  const auto node_reader = [&](int rank) { return shared.representative.at(static_cast<std::size_t>(rank)); };
  Bytes mine;
  if (node_reader(me) == me) {
    Writer writer;
    read_this_machine(exchange.log()).write(writer);
    mine = writer.take();
  }
  const std::uint64_t my_hash = mine.empty() ? 0 : hash(mine);
  const auto hashes = exchange.all_gather("topology: kinds of machines", Writer().put(my_hash).take());
  Machines machines;
  std::map<std::uint64_t, int> first;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    Reader reader(hashes.at(static_cast<std::size_t>(node_reader(rank))));
    machines.hash_of.push_back(reader.get<std::uint64_t>());
    first.emplace(machines.hash_of.back(), node_reader(rank));
  }
  const bool i_send = !mine.empty() && first.at(my_hash) == me;
  const auto all = exchange.all_gather("topology: machines", i_send ? mine : Bytes{});
  for (const auto& [key, rank] : first) {
    Reader reader(all.at(static_cast<std::size_t>(rank)));
    machines.shapes.emplace(key, MachineShape::read(reader));
  }
  return machines;
}

// Combines two sources. hwloc knows the places of GPUs, and CUDA their reach. CUDA does not tell NVLink from PCIe, and
// was not asked about pairs that no process sees together.
GpuLink link_between(const VisibleGpu& a, const VisibleGpu& b, GpuLink by_place) {
  const auto told = a.reaches.find(b.id);
  if (told == a.reaches.end() || by_place == GpuLink::nvlink) return by_place;
  return told->second ? GpuLink::peer : GpuLink::via_host;
}

// Gives the node all GPUs that any of its members sees, since hwloc cannot know them for certain. If no member sees
// any, hwloc's stay, so that unusable ones are shown.
void take_gpus(MachineShape& shape, Node& node, const std::vector<const Report*>& members) {
  std::map<std::pair<std::string, std::string>, ReportedGpu> seen;  // by bus, then serial
  for (const Report* report : members) {
    for (const ReportedGpu& each : report->gpus) {
      auto& reaches = seen.emplace(std::pair(each.gpu.bus, each.gpu.id), each).first->second.gpu.reaches;
      reaches.insert(each.gpu.reaches.begin(), each.gpu.reaches.end());
    }
  }
  if (seen.empty()) return;
  const MachineShape before = shape;
  shape.gpus.clear();
  shape.gpu_links.clear();
  std::vector<int> known;
  std::vector<const VisibleGpu*> gpus;
  for (const auto& [key, each] : seen) {
    gpus.push_back(&each.gpu);
    const auto found = std::ranges::find(before.gpus, each.gpu.bus, &Gpu::bus);
    known.push_back(found == before.gpus.end() ? none : static_cast<int>(found - before.gpus.begin()));
    shape.gpus.push_back({each.gpu.name, each.gpu.bus, each.numa, each.package});
    node.gpu_ids.push_back(each.gpu.id);
  }
  for (std::size_t a = 0; a < known.size(); ++a) {
    for (std::size_t b = 0; b < known.size(); ++b) {
      const bool both = known[a] != none && known[b] != none;
      const GpuLink by_place = both ? before.gpu_link(known[a], known[b]) : GpuLink::via_host;
      shape.gpu_links.push_back(a == b ? GpuLink::same : link_between(*gpus[a], *gpus[b], by_place));
    }
  }
}

Place place_of(const Report& report, int machine, const Node& node) {
  Place place{.machine = machine, .pus = report.pus, .cpu_quota = report.cpu_quota, .gpus = {}};
  for (const ReportedGpu& each : report.gpus) {
    const auto found = std::ranges::find(node.gpu_ids, each.gpu.id);
    if (found != node.gpu_ids.end()) place.gpus.push_back(static_cast<int>(found - node.gpu_ids.begin()));
  }
  return place;
}

TopologyParts assemble(const std::vector<Report>& reports, const SharedNodes& shared, const Machines& machines) {
  TopologyParts parts;
  parts.remarks = shared.remarks;
  std::map<int, std::vector<const Report*>> members_of;  // by representative, which is the lowest rank
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    members_of[shared.representative[rank]].push_back(&reports[rank]);
  std::map<int, int> node_of;
  for (const auto& [representative, members] : members_of) {
    const Report& first = *members.front();
    MachineShape shape = machines.shapes.at(machines.hash_of.at(static_cast<std::size_t>(representative)));
    Node node{first.host, 0, {}, first.addresses};
    take_gpus(shape, node, members);
    node.machine = parts.intern(shape);
    node_of[representative] = static_cast<int>(parts.nodes.size());
    parts.nodes.push_back(std::move(node));
  }
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const int number = node_of.at(shared.representative[rank]);
    const Node& node = parts.nodes.at(static_cast<std::size_t>(number));
    const int place = parts.intern(place_of(reports[rank], node.machine, node));
    parts.members.push_back({number, place, reports[rank].process});
  }
  return parts;
}

}  // namespace

Rack rack_here(const Settings& settings, const Environment& environment) {
  const auto racks = racks_of(settings);
  if (!racks) return {rack_by_slurm(environment), 0};
  return {racks->of(host_name()), racks->uplink_mbit_per_s};
}

Topology discover(Exchange& exchange, int colour, const VisibleGpus& devices, const Rack& rack) {
  const SharedNodes shared = find_shared_nodes(exchange, colour);
  const Machines machines = gather_machines(exchange, shared);
  const std::uint64_t my_hash = machines.hash_of.at(static_cast<std::size_t>(exchange.rank()));
  Report mine = report_self(machines.shapes.at(my_hash), devices);
  mine.rack = rack;
  std::vector<Report> reports;
  for (const Bytes& bytes : exchange.all_gather("topology: members", write(mine))) {
    reports.push_back(read_report(bytes));
  }
  const Topology topology(assemble(reports, shared, machines));
  std::vector<std::string> racks;
  std::int64_t uplink = 0;
  for (int node = 0; node < topology.node_count(); ++node) {
    const Rack& each = reports.at(static_cast<std::size_t>(topology.ranks_of_node(node).front())).rack;
    racks.push_back(each.name);
    uplink = std::max(uplink, each.mbit_per_s);
  }
  return topology.with_racks(std::move(racks), uplink);
}

}  // namespace lockstep
