// SPDX-License-Identifier: Apache-2.0
// Gathers facts, and packs them for the exchange with other members.
#include "tools/lockstep/doctor_facts.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/nccl/library.hpp"
#include "collectives/node/tuning_record.hpp"
#include "tools/lockstep/doctor_probes.hpp"
#include "topology/base/cgroup.hpp"
#include "topology/base/environment.hpp"
#include "topology/machine/device.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

// Visits all fields, for writing and for reading. A field that is missing here does not travel.
template <class Each, class Visit>
void visit_fields(Each& facts, Visit visit) {
  visit(facts.host, facts.kernel, facts.net_namespace, facts.container);
  visit(facts.version, facts.commit, facts.cuda, facts.mpi, facts.mpi_libraries);
  visit(facts.launcher_variable, facts.launcher_size, facts.launcher_command, facts.cluster_named);
  visit(facts.open_mpi_launcher, facts.pmi_launcher, facts.yields, facts.hwloc_override);
  visit(facts.settings, facts.setting_warnings);
  visit(facts.shared_memory, facts.shared_memory_is_disk, facts.locked_memory, facts.lock_limit_bytes);
  visit(facts.unreadable, facts.read_error, facts.ptrace_scope, facts.huge_pages);
  visit(facts.thresholds, facts.unsure_thresholds, facts.final_threshold_files);
  visit(facts.reachable_pus, facts.open_files, facts.open_files_hard);
  visit(facts.clock_source, facts.clock_ns, facts.wall_clock_ns, facts.rdma, facts.link_mbit_per_s);
  visit(facts.gpu_built, facts.gpu_driver, facts.gpu_runtime, facts.why_no_gpu, facts.gpu_ids);
  visit(facts.gpu_states, facts.nccl, facts.why_no_nccl);
}

template <Plain T>
void put(Writer& writer, T value) {
  writer.put(value);
}
void put(Writer& writer, const std::string& value) { writer.put(value); }
void put(Writer& writer, const IndexSet& value) { writer.put(value); }
void put(Writer& writer, const ResourceGrant& value) {
  writer.put(value.wanted_bytes).put(value.got_bytes).put(value.error);
}
void put(Writer& writer, const std::vector<std::string>& value) {
  writer.put(static_cast<std::uint64_t>(value.size()));
  for (const std::string& each : value) writer.put(each);
}

template <Plain T>
void get(Reader& reader, T& value) {
  value = reader.get<T>();
}
// Accepts any byte, because only two of them are a valid bool.
void get(Reader& reader, bool& value) { value = reader.get<std::uint8_t>() != 0; }
void get(Reader& reader, std::string& value) { value = reader.get_string(); }
void get(Reader& reader, IndexSet& value) { value = reader.get_set(); }
void get(Reader& reader, ResourceGrant& value) {
  get(reader, value.wanted_bytes);
  get(reader, value.got_bytes);
  get(reader, value.error);
}
void get(Reader& reader, std::vector<std::string>& value) {
  value.resize(reader.get_count(sizeof(std::uint64_t)));
  for (std::string& each : value) each = reader.get_string();
}

}  // namespace

Bytes Facts::to_bytes() const {
  Writer writer;
  visit_fields(*this, [&](const auto&... fields) { (put(writer, fields), ...); });
  return writer.take();
}

Facts Facts::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Facts facts;
  visit_fields(facts, [&](auto&... fields) { (get(reader, fields), ...); });
  reader.expect_done();
  return facts;
}

namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

std::string whole_file(const char* path) {
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool exists(const char* path) { return ::access(path, F_OK) == 0; }

std::string container_kind() {
  if (process_environment("KUBERNETES_SERVICE_HOST") != nullptr) return "kubernetes";
  if (exists("/run/.containerenv")) return "podman";
  return exists("/.dockerenv") ? "docker" : "";
}

bool is_on(const char* value) {
  const std::string_view word = value == nullptr ? "" : value;
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

void ask_where(Facts& facts) {
  facts.host = host_name();
  facts.kernel = first_line("/proc/sys/kernel/random/boot_id");
  if (facts.kernel.empty()) facts.kernel = facts.host;  // the boot id is hidden; the host name is the best guess
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) == 0) facts.net_namespace = status.st_ino;
  facts.container = container_kind();
}

void ask_launcher(Facts& facts) {
  const auto hint = launcher_hint(process_environment);
  facts.launcher_variable = hint ? hint->variable : "";
  facts.launcher_size = hint ? hint->size : 0;
  facts.launcher_command = hint ? hint->command : "";
  facts.cluster_named = tf_config_names_cluster(process_environment);
  facts.open_mpi_launcher = process_environment("OMPI_COMM_WORLD_SIZE") != nullptr;
  facts.pmi_launcher = process_environment("PMI_SIZE") != nullptr;
  facts.yields = is_on(process_environment("OMPI_MCA_mpi_yield_when_idle"));
  for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT"}) {
    const char* value = process_environment(name);
    if (value != nullptr && facts.hwloc_override.empty()) facts.hwloc_override = text(name, "=", value);
  }
}

void ask_limits(Facts& facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.lock_limit_bytes = limit.rlim_cur;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = limit.rlim_cur;
    facts.open_files_hard = limit.rlim_max;
  }
  const auto scope = parse_integer(first_line("/proc/sys/kernel/yama/ptrace_scope"));
  facts.ptrace_scope = scope && *scope >= 0 && *scope < 10 ? static_cast<int>(*scope) : -1;
  facts.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts.clock_source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::error_code error;
  const std::filesystem::directory_iterator adapters("/sys/class/infiniband", error);
  facts.rdma = !error && begin(adapters) != end(adapters);
}

std::int64_t wall_clock_ns() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// Reads the stored thresholds for as many members as this node has.
void ask_thresholds(const Topology& topology, int rank, Facts& facts) {
  const int members = static_cast<int>(topology.ranks_of_node(topology.member(rank).node).size());
  for (const node::StoredRecord& each : node::stored_records(members)) {
    const node::TuningConfidence confidence = each.record.confidence();
    facts.thresholds.push_back(text(each.layout, ": ", node::to_text(confidence)));
    if (confidence.counted > 0) continue;
    facts.unsure_thresholds.push_back(facts.thresholds.back());
    if (confidence.is_full) facts.final_threshold_files.push_back(each.path);
  }
}

// Finds the members of the node whose memory this process cannot read.
void read_neighbours(const Exchange& exchange, const Topology& topology, const std::vector<Bytes>& offers,
                     Facts& facts) {
  for (const int rank : topology.ranks_of_node(topology.member(exchange.rank()).node)) {
    if (rank == exchange.rank()) continue;
    const ReadResult result = read_token(topology.member(rank).process, offers.at(static_cast<std::size_t>(rank)));
    if (result.well) continue;
    if (facts.unreadable.empty()) facts.read_error = result.error;
    facts.unreadable.insert(rank);
  }
}

}  // namespace

Facts ask(const Session& session, const Settings& given) {
  Facts facts;
  ask_where(facts);
  facts.version = version();
  facts.commit = commit();
  facts.cuda = cuda_version();
  facts.mpi = mpi_version();
  facts.mpi_libraries = mpi_libraries(whole_file("/proc/self/maps"));
  ask_launcher(facts);
  for (const SettingRow& row : setting_rows()) facts.settings.push_back(given.value(row.setting));
  facts.setting_warnings = given.warnings();
  ask_limits(facts);
  ask_thresholds(session.topology(), session.rank(), facts);
  const VisibleGpus& devices = session.devices();
  facts.gpu_built = devices.built;
  facts.gpu_driver = devices.driver_version;
  facts.gpu_runtime = devices.runtime_version;
  facts.why_no_gpu = devices.why_none;
  for (const VisibleGpu& gpu : devices.gpus) {
    facts.gpu_ids.push_back(gpu.id.empty() ? gpu.bus : gpu.id);
    facts.gpu_states.push_back(gpu.state);
  }
  if (nccl::NcclInterface* const library = nccl::library()) facts.nccl = library->version();
  facts.why_no_nccl = nccl::why_none();
  return facts;
}

std::vector<Facts> try_and_gather(Exchange& exchange, const Topology& topology, Facts facts) {
  constexpr Duration patience = std::chrono::seconds(5);
  const std::size_t members = topology.ranks_of_node(topology.member(exchange.rank()).node).size();
  const std::uint64_t share = fair_share_bytes(free_memory_bytes(), members);  // read before any member allocates
  const ProbeToken token;
  const auto offers = exchange.all_gather("doctor: offers", token.offer());
  facts.wall_clock_ns = wall_clock_ns();
  facts.clock_ns = clock_cost_ns();
  facts.reachable_pus = reachable_pus();
  read_neighbours(exchange, topology, offers, facts);
  facts.locked_memory = try_lock(std::min(wanted_locked_bytes, share / 4));
  const HeldMemory held("/dev/shm", share, patience);
  facts.shared_memory = held.grant();
  facts.shared_memory_is_disk = held.is_disk();
  // All members have tried when this returns. Only then are the token and the memory released.
  std::vector<Facts> all;
  for (const Bytes& bytes : exchange.all_gather("doctor: facts", facts.to_bytes()))
    all.push_back(Facts::from_bytes(bytes));
  return all;
}

}  // namespace lockstep::command
