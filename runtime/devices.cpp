// SPDX-License-Identifier: Apache-2.0
// Parses device names, lists this process's devices, and binds replicas' threads to processors.
#include "runtime/devices.hpp"

#include <algorithm>
#include <cctype>

#include "collectives/gpu/device_backend.hpp"
#include "topology/base/affinity.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine_pieces.hpp"

namespace lockstep {
namespace {

// Describes the machine at the first use, so that later bindings of this process don't count.
struct ProcessMachine {
  MachineShape machine = read_this_machine(Log(LogLevel::off));
  IndexSet allowed = allowed_pus(machine);
};
const ProcessMachine& here() {
  // Is never destroyed, since replicas may run while exit() destroys statics.
  static const ProcessMachine* const one = new ProcessMachine;
  return *one;
}

[[noreturn]] void refuse_name(std::string_view words) {
  throw Error(Code::usage, text("there is no device '", printable(words), '\''),
              "write cpu:0, gpu:1, or /job:worker/replica:0/task:1/device:GPU:0");
}

std::string short_name(const DeviceName& device) { return text(device.type == "GPU" ? "gpu:" : "cpu:", device.index); }

// Returns 0 without CUDA or a driver.
std::size_t number_of_gpus() {
  const gpu::DeviceBackend* const all = gpu::backend();
  return all == nullptr ? 0 : static_cast<std::size_t>(all->devices());
}

// Returns the cores on which this process may run, by their number in the machine.
IndexSet cores() {
  IndexSet all;
  for (const int pu : here().allowed.members()) all.insert(here().machine.pus[static_cast<std::size_t>(pu)].core);
  return all;
}

// Returns the hardware threads of one core on which this process may run.
MachinePiece piece_of(int core) {
  MachinePiece piece{{}, text("core ", core)};
  for (const int pu : here().allowed.members()) {
    if (here().machine.pus[static_cast<std::size_t>(pu)].core == core) piece.pus.insert(pu);
  }
  return piece;
}

// Returns the binding of a replica to a piece. A piece of the whole machine needs no binding.
detail::ReplicaPlacement placement_of(DeviceName device, const MachinePiece& piece) {
  detail::ReplicaPlacement placement{std::move(device), piece.name, {}, shared_units_of(here().machine, piece.pus)};
  if (piece.pus == here().allowed) return placement;  // The replica may run on all processors anyway.
  for (const int pu : piece.pus.members())
    placement.cpus.push_back(here().machine.pus[static_cast<std::size_t>(pu)].os_index);
  return placement;
}

// Returns the processors near each GPU in the list, if the machine tells them.
std::vector<MachinePiece> pieces_by_device(const std::vector<DeviceName>& names) {
  const bool are_real = gpu::backend() != nullptr && gpu::backend() == gpu::own_backend();
  const std::vector<VisibleGpu> seen = are_real ? read_visible_gpus().gpus : std::vector<VisibleGpu>();
  std::vector<std::string> buses;
  for (const DeviceName& name : names) {
    const bool is_known = name.type == "GPU" && static_cast<std::size_t>(name.index) < seen.size();
    buses.push_back(is_known ? seen[static_cast<std::size_t>(name.index)].bus : std::string());
  }
  return divide_by_device(here().machine, here().allowed, buses);
}

void refuse_missing(const DeviceName& wanted, const std::vector<std::string>& there, const std::string& why) {
  std::vector<std::string> all = physical_devices("cpu");
  all.insert(all.end(), there.begin(), there.end());
  throw Error(
      Code::usage,
      text("some requested devices of the strategy are not visible: ", to_string(wanted), why.empty() ? "" : ": ", why),
      text("there are ", join(all, ", ")));
}

}  // namespace

// Parses TensorFlow's names in full or in part, such as "gpu:0" or "/job:worker/task:1/device:GPU:0".
DeviceName parse_device(std::string_view words) {
  DeviceName device;
  std::vector<std::string> seen;
  const auto number = [&](const std::string& field) {
    const auto value = parse_integer(field);
    if (!value || *value < 0 || *value > 1 << 20) refuse_name(words);
    return static_cast<int>(*value);
  };
  const std::string_view path = words.starts_with('/') ? words.substr(1) : words;
  for (const std::string& part : split(path, '/')) {
    std::vector<std::string> fields = split(part, ':');
    if (fields.size() == 3 && detail::upper(fields[0]) == "DEVICE") fields.erase(fields.begin());
    if (fields.size() != 2 || !device.type.empty()) refuse_name(words);  // The type comes last.
    const std::string key = detail::upper(fields[0]);
    if (std::ranges::count(seen, key) > 0) refuse_name(words);
    seen.push_back(key);
    if (key == "JOB") {
      device.job = fields[1];
    } else if (key == "TASK") {
      device.task = number(fields[1]);
    } else if (key == "CPU" || key == "GPU") {
      device.type = key;
      device.index = number(fields[1]);
    } else if (key != "REPLICA" || number(fields[1]) != 0) {
      refuse_name(words);
    }
  }
  if (device.type.empty() || device.job.empty()) refuse_name(words);
  return device;
}

std::string to_string(const DeviceName& device) {
  return text("/job:", device.job, "/replica:0/task:", device.task, "/device:", device.type, ':', device.index);
}

// Compares only the parts that the text has, so "gpu:0" means that GPU of any task.
bool is_meant(std::string_view words, const DeviceName& device) {
  const DeviceName wanted = parse_device(words);
  const std::string upper = detail::upper(words);
  if (upper.find("JOB:") != std::string::npos && wanted.job != device.job) return false;
  if (upper.find("TASK:") != std::string::npos && wanted.task != device.task) return false;
  return wanted.type == device.type && wanted.index == device.index;
}

std::vector<std::string> physical_devices(std::string_view type) {
  const std::string wanted = detail::upper(type);
  if (wanted != "CPU" && wanted != "GPU")
    throw Error(Code::usage, text("there are no devices of the type '", printable(type), '\''), "say cpu or gpu");
  const std::size_t number = wanted == "CPU" ? cores().size() : number_of_gpus();
  std::vector<std::string> all;
  for (std::size_t i = 0; i < number; ++i) all.push_back(text(wanted == "CPU" ? "cpu:" : "gpu:", i));
  return all;
}

namespace detail {

int ReplicaPlacement::gpu() const { return device.type == "GPU" ? device.index : gpu::MemoryLocation::host; }

std::string upper(std::string_view words) {
  std::string all(words);
  std::ranges::transform(all, all.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return all;
}

std::vector<ReplicaPlacement> placements_for(int replicas) {
  std::vector<ReplicaPlacement> placements;
  for (const MachinePiece& piece : divide(here().machine, here().allowed, replicas))
    placements.push_back(placement_of({.type = "CPU", .index = static_cast<int>(placements.size())}, piece));
  return placements;
}

std::vector<ReplicaPlacement> placements_for(const std::vector<std::string>& devices) {
  if (devices.empty()) throw Error(Code::usage, "a strategy with no devices", "name one at least, such as cpu:0");
  std::vector<DeviceName> names;
  for (const std::string& each : devices) {
    names.push_back(parse_device(each));
    if (std::ranges::count(names, names.back()) > 1)
      throw Error(Code::usage, text("no duplicates allowed in the devices of a strategy: ", short_name(names.back())),
                  "name each once");
  }
  const std::vector<int> all_cores = cores().members();
  const int number = static_cast<int>(all_cores.size());
  std::vector<ReplicaPlacement> placements;
  const std::vector<MachinePiece> near = pieces_by_device(names);
  for (const DeviceName& name : names) {
    if (name.job != "localhost" || name.task != 0) refuse_missing(name, {}, "it is not of this process");
    if (name.type == "GPU") {
      if (static_cast<std::size_t>(name.index) >= number_of_gpus())
        refuse_missing(name, physical_devices("gpu"), gpu::why_none());
      const MachinePiece& piece = near[placements.size()];
      placements.push_back(piece.pus.empty() ? ReplicaPlacement{name, text("GPU ", name.index)}
                                             : placement_of(name, piece));
      if (!piece.pus.empty()) placements.back().place = text("GPU ", name.index, ", near ", piece.name);
      continue;
    }
    if (name.index >= number) refuse_missing(name, {}, {});
    placements.push_back(placement_of(name, piece_of(all_cores[static_cast<std::size_t>(name.index)])));
  }
  return placements;
}

ScopedCpuBinding::ScopedCpuBinding(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  before_ = bound_processors();
  if (before_.empty() || before_ == cpus || !bind_to_processors(cpus)) before_.clear();
}
ScopedCpuBinding::~ScopedCpuBinding() {
  if (!before_.empty()) bind_to_processors(before_);
}

}  // namespace detail
}  // namespace lockstep
