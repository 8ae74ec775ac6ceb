// SPDX-License-Identifier: Apache-2.0
// Calls hwloc, and turns its objects into a MachineShape.
#include "topology/machine/read_machine.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/description.hpp"
#include "topology/machine/child.hpp"
#include "topology/machine/network.hpp"

namespace lockstep {
namespace {

struct HwlocDeleter {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<hwloc_topology, HwlocDeleter>;

// Returns an hwloc topology with the flags that all readers here need; it is not loaded yet.
Hwloc start_hwloc() {
  refuse_code_of_the_user();
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw Error(Code::out_of_memory, "hwloc cannot start");
  Hwloc owned(topology);
  // Reads the machine as it is, not as this process's cpuset shows it: ranks with different cpusets must agree on the
  // picture.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  return owned;
}

// Returns the number of the part of that type above the object; `none` if there is none.
int ancestor_index(hwloc_topology_t topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  const hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(topology, type, object);
  return found == nullptr ? none : static_cast<int>(found->logical_index);
}

// Returns the smallest NUMA node that is near all of the object, and the first of equals. Fast and plain memory may lie
// side by side, or memory may hang at two levels.
int numa_index(hwloc_topology_t topology, hwloc_obj_t object) {
  while (object != nullptr && object->cpuset == nullptr) object = object->parent;
  hwloc_obj_t best = nullptr;
  for (int i = 0; object != nullptr && i < hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE); ++i) {
    const hwloc_obj_t numa = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    if (hwloc_bitmap_isincluded(object->cpuset, numa->cpuset) == 0) continue;
    if (best == nullptr || hwloc_bitmap_weight(numa->cpuset) < hwloc_bitmap_weight(best->cpuset)) best = numa;
  }
  return best == nullptr ? none : static_cast<int>(best->logical_index);
}

std::string info(hwloc_obj_t object, const char* key) {
  const char* value = hwloc_obj_get_info_by_name(object, key);
  return value == nullptr ? std::string() : std::string(trim(value));
}

// Returns the processor's name, or a substitute that equal machines share.
std::string model_of(hwloc_topology_t topology) {
  const hwloc_obj_t root = hwloc_get_root_obj(topology);
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  for (const hwloc_obj_t object : {package, root}) {
    if (object == nullptr) continue;
    for (const char* key : {"CPUModel", "PlatformModel", "SyntheticDescription"}) {
      std::string model = info(object, key);
      if (!model.empty()) return model;
    }
  }
  return "unknown processor";
}

// Returns the size of the first cache of that level; 0 if unknown.
std::uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache == nullptr ? 0 : cache->attr->cache.size;
}

// Adds all hardware threads in hwloc's order, which is that of the machine.
void add_pus(hwloc_topology_t topology, MachineShape& shape) {
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t pu = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, static_cast<unsigned>(i));
    const int core = ancestor_index(topology, pu, HWLOC_OBJ_CORE);
    shape.pus.push_back({.os_index = static_cast<int>(pu->os_index),
                         .core = core == none ? i : core,  // on machines that show no cores, each thread is one
                         .l2 = ancestor_index(topology, pu, HWLOC_OBJ_L2CACHE),
                         .l3 = ancestor_index(topology, pu, HWLOC_OBJ_L3CACHE),
                         .numa = numa_index(topology, pu),
                         .package = ancestor_index(topology, pu, HWLOC_OBJ_PACKAGE)});
  }
}

// True for 3D controllers, displays of NVIDIA and AMD, and devices in which hwloc found a coprocessor.
bool names_gpu(hwloc_obj_t device) {
  constexpr unsigned nvidia = 0x10de;
  constexpr unsigned amd = 0x1002;
  constexpr unsigned display = 0x03;
  constexpr unsigned display_3d = 0x0302;
  const auto& pci = device->attr->pcidev;
  const bool maker = pci.vendor_id == nvidia || pci.vendor_id == amd;
  if (pci.class_id == display_3d || (maker && pci.class_id >> 8 == display)) return true;
  for (hwloc_obj_t child = device->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_OS_DEVICE && child->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC) return true;
  }
  return false;
}

// Returns the PCI address as nvidia-smi prints it: "0000:3b:00.0".
std::string bus_of(hwloc_obj_t device) {
  const auto& pci = device->attr->pcidev;
  char bus[32];
  std::snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", static_cast<unsigned>(pci.domain), pci.bus, pci.dev, pci.func);
  return bus;
}

// Returns the model if hwloc knows it, or the PCI name.
std::string name_of_gpu(hwloc_obj_t device) {
  for (hwloc_obj_t child = device->io_first_child; child != nullptr; child = child->next_sibling) {
    std::string model = info(child, "GPUModel");
    if (!model.empty()) return model;
  }
  const std::string name = device->name == nullptr ? info(device, "PCIDevice") : device->name;
  return name.empty() ? "GPU" : name;
}

hwloc_obj_t outside_of_io(hwloc_topology_t topology, hwloc_obj_t object) {
  return hwloc_get_non_io_ancestor_obj(topology, object);
}

// Tells links apart: NVLink if hwloc knows of it (its distances), else PCIe below a common bridge, else the host.
class GpuLinks {
 public:
  explicit GpuLinks(hwloc_topology_t topology) : topology_(topology) {
    unsigned count = 1;
    hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &nvlink_, 0);
    if (count == 0) nvlink_ = nullptr;
  }
  ~GpuLinks() {
    if (nvlink_ != nullptr) hwloc_distances_release(topology_, nvlink_);
  }
  GpuLinks(const GpuLinks&) = delete;
  GpuLinks& operator=(const GpuLinks&) = delete;

  GpuLink between(hwloc_obj_t a, hwloc_obj_t b) const {
    if (a == b) return GpuLink::same;
    if (nvlink_between(a, b)) return GpuLink::nvlink;
    for (hwloc_obj_t up = a->parent; up != nullptr && up->type == HWLOC_OBJ_BRIDGE; up = up->parent) {
      for (hwloc_obj_t other = b->parent; other != nullptr && other->type == HWLOC_OBJ_BRIDGE; other = other->parent) {
        if (up == other) return GpuLink::pcie;
      }
    }
    return GpuLink::via_host;
  }

 private:
  // hwloc's distances name OS devices (nvml0); ours are the PCI devices that hold them.
  bool nvlink_between(hwloc_obj_t a, hwloc_obj_t b) const {
    for (unsigned i = 0; nvlink_ != nullptr && i < nvlink_->nbobjs; ++i) {
      for (unsigned j = 0; j < nvlink_->nbobjs; ++j) {
        if (holds(a, nvlink_->objs[i]) && holds(b, nvlink_->objs[j]) && nvlink_->values[i * nvlink_->nbobjs + j] > 0) {
          return true;
        }
      }
    }
    return false;
  }
  static bool holds(hwloc_obj_t device, hwloc_obj_t part) {
    return part != nullptr && (part == device || part->parent == device);
  }

  hwloc_topology_t topology_;
  hwloc_distances_s* nvlink_ = nullptr;
};

// Adds GPUs and the links between all pairs of them.
void add_gpus(hwloc_topology_t topology, MachineShape& shape) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t device = hwloc_get_next_pcidev(topology, nullptr); device != nullptr;
       device = hwloc_get_next_pcidev(topology, device)) {
    if (names_gpu(device)) found.push_back(device);
  }
  for (const hwloc_obj_t device : found) {
    const hwloc_obj_t near = outside_of_io(topology, device);
    const int package = near->type == HWLOC_OBJ_PACKAGE ? static_cast<int>(near->logical_index)
                                                        : ancestor_index(topology, near, HWLOC_OBJ_PACKAGE);
    shape.gpus.push_back({name_of_gpu(device), bus_of(device), numa_index(topology, near), package});
  }
  const GpuLinks links(topology);
  for (const hwloc_obj_t a : found) {
    for (const hwloc_obj_t b : found) shape.gpu_links.push_back(links.between(a, b));
  }
}

// Adds the interfaces of a described machine. Their rates are unknown; on this machine the system tells them.
void add_nics(hwloc_topology_t topology, MachineShape& shape) {
  for (hwloc_obj_t device = hwloc_get_next_osdev(topology, nullptr); device != nullptr;
       device = hwloc_get_next_osdev(topology, device)) {
    const auto type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    const hwloc_obj_t near = outside_of_io(topology, device);
    const int package = near->type == HWLOC_OBJ_PACKAGE ? static_cast<int>(near->logical_index)
                                                        : ancestor_index(topology, near, HWLOC_OBJ_PACKAGE);
    shape.nics.push_back({device->name == nullptr ? "net" : device->name, 0, numa_index(topology, near), package});
  }
  std::ranges::sort(shape.nics, {}, &Nic::name);
}

// Returns the installed memory. Kernels keep some for themselves, not the same on equal machines, so the number is
// rounded to three binary digits.
std::uint64_t nominal_gib(std::uint64_t bytes) {
  constexpr std::uint64_t gib = 1ULL << 30;
  const std::uint64_t whole = (bytes + gib / 2) / gib;
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(whole) / 4, 1);
  return (whole + step / 2) / step * step;
}

// Turns a loaded topology into a value that needs hwloc no more.
MachineShape shape_of(hwloc_topology_t topology) {
  MachineShape shape;
  shape.model = model_of(topology);
  shape.memory_gib = nominal_gib(hwloc_get_root_obj(topology)->total_memory);
  shape.l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
  shape.l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
  add_pus(topology, shape);
  add_gpus(topology, shape);
  return shape;
}

MachineShape load_xml(const std::string& path) {
  const Hwloc hwloc = start_hwloc();
  if (hwloc_topology_set_xml(hwloc.get(), path.c_str()) != 0 || hwloc_topology_load(hwloc.get()) != 0) {
    throw Error(Code::bad_xml, text("hwloc cannot understand ", printable(path, 200)),
                "export it again on that machine with `lstopo machine.xml`");
  }
  MachineShape shape = shape_of(hwloc.get());
  add_nics(hwloc.get(), shape);
  shape.check();
  return shape;
}

}  // namespace

namespace {

// Is hwloc's picture of this machine, without interfaces.
struct HwlocPicture {
  MachineShape shape;
  bool is_this_machine = true;
};

// True if the PCI bus has a device that may be a GPU: a display, a coprocessor or an accelerator. It is also true if
// the system does not tell. Then hwloc must look at the bus, whose registers take over a millisecond each to read on
// virtual machines.
bool may_have_gpus() {
  constexpr std::array<std::string_view, 3> kinds = {"0x03", "0x0b40", "0x12"};
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    std::ifstream file(device.path() / "class");
    std::string kind;
    std::getline(file, kind);
    if (kind.empty() || std::ranges::any_of(kinds, [&](std::string_view each) { return kind.starts_with(each); }))
      return true;
  }
  return static_cast<bool>(error);
}

// Loads with few components of hwloc if `quick`. `x86` runs this thread on each core in turn, and waits for busy ones;
// Linux tells the same. `gl` tries to connect to X servers.
HwlocPicture load_this_machine(bool is_replaced, bool quick) {
  const Hwloc hwloc = start_hwloc();
  if (quick) {
    for (const char* const component : {"x86", "gl"})
      hwloc_topology_set_components(hwloc.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (quick && !is_replaced && !may_have_gpus())
    hwloc_topology_set_io_types_filter(hwloc.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(hwloc.get()) != 0) throw system_error("hwloc cannot read this machine", errno);
  return {shape_of(hwloc.get()), hwloc_topology_is_thissystem(hwloc.get()) != 0};
}

// Returns the picture that this process has read before, under the same variables.
HwlocPicture picture_of_this_machine() {
  struct Known {
    std::mutex mutex;
    std::map<std::string, HwlocPicture> by_variables;
  };
  static Known* const known = new Known;  // sessions may be made while exit() destroys statics
  std::string variables;
  for (const char* const name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT"}) {
    const char* const value = process_environment(name);
    if (value != nullptr) variables += text(name, '=', value, '\n');
  }
  const std::lock_guard lock(known->mutex);
  if (const auto found = known->by_variables.find(variables); found != known->by_variables.end()) return found->second;
  HwlocPicture read = load_this_machine(!variables.empty(), true);
  // Some systems do not tell of caches, but the processor does.
  if (read.is_this_machine && read.shape.l2_bytes == 0) read = load_this_machine(!variables.empty(), false);
  return known->by_variables[variables] = std::move(read);
}

}  // namespace

MachineShape read_this_machine(const Log& log) {
  refuse_code_of_the_user();
  HwlocPicture read = picture_of_this_machine();
  if (!read.is_this_machine)
    log.warn("HWLOC_XMLFILE or HWLOC_SYNTHETIC is set: it replaces the description of this machine");
  for (const LocalNic& nic : read_nics()) read.shape.nics.push_back(nic.nic);
  return std::move(read.shape);
}

namespace {

// Loads a description by hwloc. GPUs come from the rest of the text, so hwloc's are dropped.
MachineShape load_synthetic(const std::string& words) {
  const Hwloc hwloc = start_hwloc();
  if (hwloc_topology_set_synthetic(hwloc.get(), words.c_str()) != 0 || hwloc_topology_load(hwloc.get()) != 0) {
    throw Error(Code::bad_description, text("hwloc does not accept \"", printable(words), "\""),
                "give levels from large to small that end with pu, as \"package:2 core:4 pu:1\" (man 7 hwloc); "
                "HWLOC_SYNTHETIC_VERBOSE=1 makes hwloc print the reason");
  }
  MachineShape shape = shape_of(hwloc.get());
  shape.model = words;
  shape.gpus.clear();
  shape.gpu_links.clear();
  return shape;
}

// Reads a machine in a child process, where hwloc can do no harm.
MachineShape read_in_child(std::string_view what, Code code, const std::function<MachineShape()>& load) {
  const Bytes bytes = run_in_child(what, code, [&] {
    Writer writer;
    load().write(writer);
    return writer.take();
  });
  Reader reader(bytes);
  return MachineShape::read(reader);
}

}  // namespace

// Reads in a child with a limit on time, because hwloc takes hours over some descriptions (tens of thousands of cores
// side by side).
MachineShape read_synthetic_machine(std::string_view words) {
  return read_in_child(text("reading \"", printable(words), "\""), Code::bad_description,
                       [&] { return load_synthetic(std::string(words)); });
}

// Checks the file first, so that most mistakes have a clear error; the rest happens in a child process.
MachineShape read_xml_machine(const std::string& path) {
  constexpr std::uintmax_t largest = 64U << 20U;  // bytes
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(Code::bad_xml, text(printable(path, 200), ": ", error.message()), "give the path of a readable file");
  }
  if (size > largest)
    throw Error(Code::bad_xml, text(printable(path, 200), " has ", size, " bytes"), "the limit is 64 MiB");
  return read_in_child(text("reading ", printable(path, 200)), Code::bad_xml, [&] { return load_xml(path); });
}

IndexSet allowed_pus(const MachineShape& machine) {
  constexpr std::size_t most_words = 1U << 16U;  // words of 64 processors each
  std::vector<std::uint64_t> mask(16);
  IndexSet allowed;
  // The kernel wants room for all processors that it could ever have.
  while (sched_getaffinity(0, mask.size() * sizeof mask[0], reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    if (errno != EINVAL || mask.size() >= most_words) {
      throw system_error("the processors that this process may run on cannot be read", errno);
    }
    mask.assign(mask.size() * 2, 0);
  }
  for (std::size_t i = 0; i < machine.pus.size(); ++i) {
    const auto os_index = static_cast<std::size_t>(machine.pus[i].os_index);
    if (os_index / 64 < mask.size() && (mask.at(os_index / 64) >> (os_index % 64) & 1U) != 0)
      allowed.insert(static_cast<int>(i));
  }
  // A picture from HWLOC_XMLFILE may lack our processors altogether.
  return allowed.empty() ? IndexSet::range(0, static_cast<int>(machine.pus.size()) - 1) : allowed;
}

Topology topology_from_description(std::string_view description, int ranks_per_node) {
  std::vector<DescribedNodes> nodes;
  std::map<std::string, MachineShape> known;  // equal groups are read once
  for (const NodeDescription& each : parse_description(description)) {
    if (!known.contains(each.hwloc)) known[each.hwloc] = read_synthetic_machine(each.hwloc);
    nodes.push_back({with_devices(known[each.hwloc], each), each.count, each.ranks > 0 ? each.ranks : ranks_per_node});
  }
  return describe(nodes);
}

Topology topology_from_xml(const std::vector<std::string>& paths, int nodes_each, int ranks_per_node) {
  std::vector<DescribedNodes> nodes;
  nodes.reserve(paths.size());
  for (const std::string& path : paths) nodes.push_back({read_xml_machine(path), nodes_each, ranks_per_node});
  return describe(nodes);
}

std::string hwloc_version() { return HWLOC_VERSION; }

}  // namespace lockstep
