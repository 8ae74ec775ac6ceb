// SPDX-License-Identifier: Apache-2.0
// Checks machine shapes, and converts them to bytes.
#include "topology/machine_shape.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string_view to_string(GpuLink link) {
  constexpr std::array<std::string_view, 6> names = {"same", "nvlink", "pcie", "via host", "network", "peer"};
  return names.at(static_cast<std::size_t>(link));
}

GpuLink MachineShape::gpu_link(int a, int b) const {
  return gpu_links.at(static_cast<std::size_t>(a) * gpus.size() + static_cast<std::size_t>(b));
}

int MachineShape::distinct(int Pu::*what) const {
  std::set<int> seen;
  for (const Pu& pu : pus) {
    if (pu.*what != none) seen.insert(pu.*what);
  }
  return static_cast<int>(seen.size());
}

void MachineShape::check() const {
  const auto require = [&](bool good, std::string_view what) {
    if (!good) throw Error(Code::bad_topology, text("machine \"", printable(model), "\": ", what));
  };
  require(!pus.empty(), "it has no processor");
  require(gpu_links.size() == gpus.size() * gpus.size(), "the table of GPU links does not fit the number of GPUs");
  std::set<int> os_indexes;
  for (const Pu& pu : pus) {
    require(pu.os_index >= 0 && os_indexes.insert(pu.os_index).second, "two hardware threads have one number");
    require(pu.core >= 0, "a hardware thread lies in no core");
  }
}

void MachineShape::write(Writer& writer) const {
  writer.put(model).put(memory_gib).put(l2_bytes).put(l3_bytes);
  writer.put(static_cast<std::uint64_t>(pus.size()));
  for (const Pu& pu : pus) writer.put(pu.os_index).put(pu.core).put(pu.l2).put(pu.l3).put(pu.numa).put(pu.package);
  writer.put(static_cast<std::uint64_t>(gpus.size()));
  for (const Gpu& gpu : gpus) writer.put(gpu.name).put(gpu.bus).put(gpu.numa).put(gpu.package);
  for (const GpuLink link : gpu_links) writer.put(link);
  writer.put(static_cast<std::uint64_t>(nics.size()));
  for (const Nic& nic : nics) writer.put(nic.name).put(nic.mbit_per_s).put(nic.numa).put(nic.package);
}

MachineShape MachineShape::read(Reader& reader) {
  MachineShape machine;
  machine.model = reader.get_string();
  machine.memory_gib = reader.get<std::uint64_t>();
  machine.l2_bytes = reader.get<std::uint64_t>();
  machine.l3_bytes = reader.get<std::uint64_t>();
  machine.pus.resize(reader.get_count(6 * sizeof(int)));
  for (Pu& pu : machine.pus) {
    for (int* field : {&pu.os_index, &pu.core, &pu.l2, &pu.l3, &pu.numa, &pu.package}) *field = reader.get<int>();
  }
  machine.gpus.resize(reader.get_count(2 * sizeof(std::uint64_t)));
  for (Gpu& gpu : machine.gpus) {
    gpu.name = reader.get_string();
    gpu.bus = reader.get_string();
    gpu.numa = reader.get<int>();
    gpu.package = reader.get<int>();
  }
  for (std::size_t left = machine.gpus.size() * machine.gpus.size(); left > 0; --left) {
    machine.gpu_links.push_back(reader.get_enum(GpuLink::peer));
  }
  machine.nics.resize(reader.get_count(2 * sizeof(std::uint64_t)));
  for (Nic& nic : machine.nics) {
    nic.name = reader.get_string();
    nic.mbit_per_s = reader.get<std::int64_t>();
    nic.numa = reader.get<int>();
    nic.package = reader.get<int>();
  }
  machine.check();
  return machine;
}

std::size_t MachineShape::size_bytes() const {
  return sizeof *this + pus.capacity() * sizeof(Pu) + gpus.capacity() * sizeof(Gpu) + gpu_links.capacity() +
         nics.capacity() * sizeof(Nic);
}

namespace {

// Returns the common value of one field, or `none` as soon as two differ.
int common(const MachineShape& machine, const std::vector<int>& pus, int Pu::*what) {
  const auto at = [&](int pu) { return machine.pus.at(static_cast<std::size_t>(pu)).*what; };
  if (pus.empty()) return none;
  const int first = at(pus.front());
  return std::ranges::all_of(pus, [&](int pu) { return at(pu) == first; }) ? first : none;
}

}  // namespace

SharedUnits shared_units_of(const MachineShape& machine, const IndexSet& pus) {
  const std::vector<int> all = pus.members();
  return {.core = common(machine, all, &Pu::core),
          .l2 = common(machine, all, &Pu::l2),
          .l3 = common(machine, all, &Pu::l3),
          .numa = common(machine, all, &Pu::numa),
          .package = common(machine, all, &Pu::package)};
}

}  // namespace lockstep
