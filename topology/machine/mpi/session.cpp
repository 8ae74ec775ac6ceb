// SPDX-License-Identifier: Apache-2.0
// Implements sessions: starts and ends MPI, compares builds and settings, and finds the topology.
#include "topology/machine/session.hpp"
#include "topology/base/text.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>

#include "topology/base/environment.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/machine/discover.hpp"
#include "topology/machine/hang_watchdog.hpp"
#include "topology/machine/last_word.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/mpi/check.hpp"
#include "topology/machine/mpi/mpi_exchange.hpp"
#include "topology/machine/network.hpp"
#include "topology/machine/session_mpi.hpp"

namespace lockstep {

std::string_view to_string(ThreadLevel level) {
  constexpr std::array<std::string_view, 4> names = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                                     "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
  return names.at(static_cast<std::size_t>(level));
}

namespace {

constexpr std::array mpi_levels = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};

ThreadLevel level_of(int mpi_level) {
  for (std::size_t i = mpi_levels.size(); i-- > 1;) {
    if (mpi_level >= mpi_levels.at(i)) return static_cast<ThreadLevel>(i);
  }
  return ThreadLevel::single;
}

// Counts the sessions of this process. MPI exists once per process, so its starter and its users are counted once per
// process too.
struct MpiProcess {
  std::mutex mutex;
  bool ours = false;  // a session started it and it has not ended
  int sessions = 0;
};

MpiProcess& mpi_process() {
  static MpiProcess process;
  return process;
}

// Returns advice for a call that does not come back. Between nodes the usual reason is an interface that leads nowhere
// (a container's bridge), so those of this node are named.
std::string hang_hint() {
  for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC"}) {
    if (process_environment(name) != nullptr) return text("the variable ", name, " may be the reason: unset it");
  }
  std::vector<std::string> interfaces;
  for (const LocalNic& nic : read_nics()) {
    interfaces.push_back(text(nic.nic.name, nic.addresses.empty() ? "" : text(" ", join(nic.addresses, " "))));
  }
  return text(
      "check for members that are stopped or were not started; between nodes, MPI may have taken an interface that "
      "leads nowhere (here: ",
      interfaces.empty() ? "none" : join(interfaces, ", "),
      "): with Open MPI, mpirun --mca btl_tcp_if_include SUBNET names the one to take");
}

// Names this rank before MPI does.
std::string launcher_name() {
  const auto rank = launcher_rank(process_environment);
  return rank ? text("rank ", *rank) : "";
}

WaitLimits patience_of(const Settings& settings) { return {settings.stall_warn(), settings.timeout()}; }

}  // namespace

struct Session::Parts {
  explicit Parts(SessionOptions given)
      : options((end_by_exit_codes(), std::move(given))),
        settings(options.settings ? *options.settings : Settings::from_environment()),
        log(Log(settings.log_level(), options.log).speaking_as(launcher_name())) {}
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void start_mpi(int* argc, char*** argv);
  void connect(MPI_Comm comm);
  void connect(std::shared_ptr<SessionBackend> on);
  void meet_or_fail();
  void meet();
  void guard_singleton() const;
  bool must_end_mpi() const;
  void part() noexcept;
  void free_ended_wires() const;
  ThreadMembers threads_on_backend(int mine);
  void say_warnings() const;
  void shake_hands();
  int host_colour();
  int kernel_colour() const;

  SessionOptions options;
  Settings settings;
  Log log;
  ThreadLevel level = ThreadLevel::single;
  bool counted = false;
  bool started = false;
  int exceptions = std::uncaught_exceptions();
  std::shared_ptr<Wire> wire;               // over MPI
  std::shared_ptr<SessionBackend> backend;  // without MPI
  std::unique_ptr<Exchange> exchange;
  VisibleGpus devices;
  std::shared_ptr<const Topology> topology;
  std::shared_ptr<Attachment> kept;
  std::unique_ptr<Attachment> attached;
};

void Session::Parts::start_mpi(int* argc, char*** argv) {
  MpiProcess& process = mpi_process();
  const std::lock_guard lock(process.mutex);
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) {
    throw Error(Code::mpi_ended,
                "a session cannot begin after MPI was ended, and MPI cannot start twice in one process",
                "keep one session alive around all others, or call MPI_Init_thread and MPI_Finalize yourself");
  }
  int running = 0;
  MPI_Initialized(&running);
  refuse_code_of_the_user(running != 0);
  int got = MPI_THREAD_SINGLE;
  if (running == 0) {
    const HangWatchdog watch("MPI_Init_thread", hang_hint, patience_of(settings), log);
    check_mpi(MPI_Init_thread(argc, argv, mpi_levels.at(static_cast<std::size_t>(options.thread_level)), &got));
    process.ours = started = true;
  }
  check_mpi(MPI_Query_thread(&got));
  level = level_of(got);
  ++process.sessions;
  counted = true;
}

// Leaves MPI_Finalize out if an error is under way or the exchange failed. Others may never come, and MPI_Finalize
// would wait for them. The launcher sees that the process left without it.
Session::Parts::~Parts() {
  bool failing = std::uncaught_exceptions() > exceptions || (exchange && exchange->failed()) ||
                 (attached && attached->failed()) || (kept && kept->failed()) || (backend && backend->failed());
  attached.reset();
  if (exchange && !failing && (backend || (must_end_mpi() && !mpi_has_ended()))) {
    part();
    failing = exchange->failed();
  }
  if (wire && failing) wire->end_in_silence();
  if (wire && !failing) wire->keep_until_all_end(std::move(kept));
  kept.reset();
  exchange.reset();
  if (backend) backend->end();
  wire.reset();
  if (!counted) return;
  free_ended_wires();
  MpiProcess& process = mpi_process();
  const std::lock_guard lock(process.mutex);
  --process.sessions;
  if (mpi_has_ended() || failing || !process.ours || process.sessions > 0) return;
  const HangWatchdog watch("MPI_Finalize", hang_hint, patience_of(settings), log);
  stop_outside_progress();
  MPI_Finalize();
  process.ours = false;
}

// True if this is the last session of a process in which a session started MPI.
bool Session::Parts::must_end_mpi() const {
  MpiProcess& process = mpi_process();
  const std::lock_guard lock(process.mutex);
  return counted && process.ours && process.sessions == 1;
}

void Session::Parts::free_ended_wires() const {
  if (mpi_has_ended() || !Wire::has_ended()) return;
  const HangWatchdog watch("MPI_Comm_free", hang_hint, patience_of(settings), log);
  Wire::free_ended();
}

// Waits for the other ranks, as the MPI_Finalize behind it does, but names those that do not come. A session that does
// not end MPI must not wait: ranks may end several sessions in different orders.
void Session::Parts::part() noexcept {
  try {
    exchange->barrier("the end of the session");
  } catch (const Error& error) {
    log.warn(text("at the end of the session: ", error.what()));
    // MPI_Finalize would wait for them as well.
    if (wire && error.code() == Code::stall) ::_exit(static_cast<int>(Exit::timeout));
  } catch (const std::exception& error) {
    log.warn(text("at the end of the session: ", error.what()));
  }
}

void Session::Parts::guard_singleton() const {
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (size > 1 || settings.allow_singleton() || options.cluster_named) return;
  if (tf_config_names_cluster(process_environment))
    return log.warn(
        "TF_CONFIG names a cluster, and this session is of one process -> make it by lockstep::start(), which "
        "takes the cluster's tasks");
  const auto hint = launcher_hint(process_environment);
  if (!hint) return;
  throw Error(Code::singleton,
              text(hint->variable, "=", hint->size, " says that ", hint->size, " processes were meant, but MPI (",
                   mpi_version(), ") sees one"),
              text(hint->command, "; LOCKSTEP_ALLOW_SINGLETON=1 continues as a world of one"));
}

void Session::Parts::connect(MPI_Comm comm) {
  free_ended_wires();
  MPI_Comm own = MPI_COMM_NULL;
  {
    const HangWatchdog watch("MPI_Comm_create", hang_hint, patience_of(settings), log);
    const OutsidePause pause;
    // Avoids MPI_Comm_dup, which runs the application's attribute callbacks and hands on its hints.
    MPI_Group all = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(comm, &all));
    check_mpi(MPI_Comm_create(comm, all, &own));
    MPI_Group_free(&all);
  }
  wire = Wire::make(own, level);
  log = log.speaking_as(text("rank ", wire->comm().rank(), " of ", wire->comm().size()));
  log.debug(text(mpi_version(), ", asked for ", to_string(options.thread_level), ", got ", to_string(level)));
  exchange = std::make_unique<MpiExchange>(wire, patience_of(settings), log);
  meet_or_fail();
}

void Session::Parts::connect(std::shared_ptr<SessionBackend> on) {
  refuse_code_of_the_user();
  backend = std::move(on);
  exchange = backend->exchange(patience_of(settings), log);
  log = log.speaking_as(text("rank ", exchange->rank(), " of ", exchange->size()));
  level = ThreadLevel::multiple;
  meet_or_fail();
}

void Session::Parts::meet_or_fail() {
  try {
    meet();
  } catch (const std::exception& error) {
    exchange->fail(error.what());  // the others must not wait for us
    throw;
  }
}

void Session::Parts::meet() {
  if (exchange->rank() == 0) say_warnings();
  shake_hands();
  devices = read_visible_gpus();
  topology = std::make_shared<const Topology>(
      discover(*exchange, wire ? host_colour() : kernel_colour(), devices, rack_here(settings, process_environment)));
  if (wire) {
    std::vector<int> ranks(static_cast<std::size_t>(topology->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    wire->set_members(Members(topology, std::move(ranks)));
  }
  if (exchange->rank() == 0) {
    for (const std::string& remark : topology->remarks()) log.warn(remark);
  }
}

void Session::Parts::say_warnings() const {
  constexpr std::size_t most = 8;  // warnings shown
  const auto& warnings = settings.warnings();
  for (std::size_t i = 0; i < std::min(most, warnings.size()); ++i) log.warn(warnings[i]);
  if (warnings.size() > most) {
    log.warn(text(warnings.size() - most, " more such variables; `lockstep doctor --env` names them all"));
  }
}

// Compares builds and settings of all members, and names the difference.
void Session::Parts::shake_hands() {
  Writer writer;
  writer.put(options.purpose).put(version());
  for (const SettingRow& row : setting_rows())
    writer.put(row.agree ? std::string_view(settings.value(row.setting)) : "");
  const auto all = exchange->all_gather("session: builds and settings", writer.take());
  const auto compare = [&](std::string_view name, Code code, std::size_t field) {
    std::map<std::string, IndexSet> ranks;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      Reader reader(all[rank]);
      for (std::size_t skipped = 0; skipped < field; ++skipped) reader.get_string();
      ranks[reader.get_string()].insert(static_cast<int>(rank));
    }
    if (ranks.size() < 2) return;
    std::vector<std::string> parts;
    parts.reserve(ranks.size());
    for (const auto& [value, who] : ranks) parts.push_back(text(printable(value), " on ranks ", who.to_string()));
    throw Error(code, text(name, " is ", join(parts, " and ")), "give all members the same");
  };
  compare("their purpose", Code::mismatch, 0);
  if (options.tolerant) return;
  compare("the version of Lockstep", Code::versions_differ, 1);
  for (std::size_t i = 0; i < setting_rows().size(); ++i) compare(setting_rows()[i].name, Code::settings_differ, i + 2);
}

// Returns the lowest rank on this host, by MPI's own account.
int Session::Parts::host_colour() {
  const HangWatchdog watch("MPI_Comm_split_type", hang_hint, patience_of(settings), log);
  const OutsidePause pause;
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm world = wire->comm().get();
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, wire->comm().rank(), MPI_INFO_NULL, &host));
  MPI_Group host_group = MPI_GROUP_NULL;
  MPI_Group world_group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(host, &host_group));
  check_mpi(MPI_Comm_group(world, &world_group));
  const int first = 0;
  int colour = 0;
  check_mpi(MPI_Group_translate_ranks(host_group, 1, &first, world_group, &colour));
  MPI_Group_free(&host_group);
  MPI_Group_free(&world_group);
  MPI_Comm_free(&host);
  return colour;
}

// Returns the lowest rank with the same running kernel and the same host name. So containers count as hosts.
int Session::Parts::kernel_colour() const {
  std::string mine = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> mine;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  mine += text(' ', name.data());
  const std::vector<Bytes> all = exchange->all_gather("hosts of members", to_bytes(mine));
  return static_cast<int>(std::ranges::find(all, to_bytes(mine)) - all.begin());
}

Session::Session(std::shared_ptr<SessionBackend> backend, SessionOptions options)
    : parts_(std::make_unique<Parts>(std::move(options))) {
  parts_->connect(std::move(backend));
}

Session::Session(SessionOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {
  parts_->start_mpi(nullptr, nullptr);
  parts_->guard_singleton();
  parts_->connect(MPI_COMM_WORLD);
}

Session::Session(int& argc, char**& argv, SessionOptions options)
    : parts_(std::make_unique<Parts>(std::move(options))) {
  parts_->start_mpi(&argc, &argv);
  parts_->guard_singleton();
  parts_->connect(MPI_COMM_WORLD);
}

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Session session_over(MPI_Comm comm, SessionOptions options) {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0)
    throw Error(Code::usage, "a session over a communicator before MPI was started",
                "call MPI_Init_thread first, or make a Session without a communicator");
  if (comm == MPI_COMM_NULL)
    throw Error(Code::usage, "a session over MPI_COMM_NULL", "give a communicator that this process is in");
  int is_inter = 0;
  check_mpi(MPI_Comm_test_inter(comm, &is_inter));
  if (is_inter != 0)
    throw Error(Code::usage, "a session over an inter-communicator", "merge its groups by MPI_Intercomm_merge first");
  auto parts = std::make_unique<Session::Parts>(std::move(options));
  parts->start_mpi(nullptr, nullptr);
  parts->connect(comm);
  return Session(std::move(parts));
}

int Session::rank() const { return parts_->exchange->rank(); }
int Session::size() const { return parts_->exchange->size(); }
Exchange& Session::exchange() { return *parts_->exchange; }
const Topology& Session::topology() const { return *parts_->topology; }
std::shared_ptr<const Topology> Session::shared_topology() const { return parts_->topology; }
ThreadMembers Session::threads_of_all(int mine) {
  if (size() == 1)
    throw Error(Code::usage, "threads as members of a session of one process",
                "make them by collectives/communicator/local.hpp");
  if (parts_->backend) return parts_->threads_on_backend(mine);
  auto made = static_cast<MpiExchange&>(*parts_->exchange).of_threads(mine, parts_->level >= ThreadLevel::serialized);
  if (!made.all_able && *std::ranges::max_element(made.numbers) > 1)
    throw Error(Code::thread_level,
                text("several members in a process, but MPI was not started for several threads (here: ",
                     to_string(parts_->level), ")"),
                "start MPI with MPI_THREAD_SERIALIZED or more");
  return {std::make_shared<std::vector<std::unique_ptr<Exchange>>>(std::move(made.exchanges)), std::move(made.numbers)};
}
ThreadMembers Session::Parts::threads_on_backend(int mine) {
  std::vector<int> numbers;
  for (const Bytes& each : exchange->all_gather("threads of each process", Writer().put(mine).take()))
    numbers.push_back(Reader(each).get<int>());
  auto exchanges = backend->of_threads(numbers, *exchange);
  return {std::make_shared<std::vector<std::unique_ptr<Exchange>>>(std::move(exchanges)), std::move(numbers)};
}

std::unique_ptr<Attachment>& Session::attachment() { return parts_->attached; }
void Session::set_network(const Topology::Network& measured) {
  parts_->topology = std::make_shared<const Topology>(parts_->topology->with_network(measured));
}
std::shared_ptr<Attachment>& Session::kept_attachment() { return parts_->kept; }
const VisibleGpus& Session::devices() const { return parts_->devices; }
const Settings& Session::settings() const { return parts_->settings; }
const Log& Session::log() const { return parts_->log; }
ThreadLevel Session::thread_level() const { return parts_->level; }
bool Session::started_mpi() const { return parts_->started; }
const std::shared_ptr<SessionBackend>& Session::backend() const { return parts_->backend; }

void end_job(Exit code) {
  int running = 0;
  int ended = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&ended);
  if (running == 0 || ended != 0) return;
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
}

}  // namespace lockstep
