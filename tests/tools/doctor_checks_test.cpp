// SPDX-License-Identifier: Apache-2.0
// The doctor's checks on facts made by hand: each fires where it should, naming the ranks and the fix,
// and is silent where all is well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <ostream>

#include "tests/tools/doctor_world.hpp"
#include "topology/base/error.hpp"
#include "topology/machine/device.hpp"

namespace lockstep::command {
namespace {

struct Case {
  std::string name;
  std::string_view check;
  Grade grade;
  std::string ranks;
  std::string says;  // in the fault or the fix
  int nodes;
  int ranks_per_node;
  Spoil spoil;
};

std::ostream& operator<<(std::ostream& out, const Case& each) { return out << each.check << ": " << each.says; }

Spoil shared(const IndexSet& ranks, std::uint64_t got, int error) {
  return set(ranks, &Facts::shared_memory, ResourceGrant{64 * mebibyte, got, error});
}

Spoil contained(std::string kind) { return set({0}, &Facts::container, std::move(kind)); }

Spoil gpus(int rank, std::vector<std::string> ids) {
  return spoil_all(set({rank}, &Facts::gpu_ids, std::move(ids)), set({rank}, &Facts::gpu_driver, 13000),
                   set({rank}, &Facts::gpu_runtime, 13000));
}

Spoil gpu_state(int rank, std::string_view state) {
  return spoil_all(gpus(0, {"GPU-a"}), gpus(1, {"GPU-b"}),
                   set({rank}, &Facts::gpu_states, std::vector{std::string(state)}));
}

Spoil nccl(std::string first, std::string second) {
  return spoil_all(gpus(0, {"GPU-a"}), gpus(1, {"GPU-b"}), set({0}, &Facts::nccl, std::move(first)),
                   set({1}, &Facts::nccl, std::move(second)),
                   set({1}, &Facts::why_no_nccl, "libnccl.so.2 is not there"));
}

Spoil idle_gpu(bool built, int driver, int runtime) {
  const auto machine = [](World& world) {
    world.parts.machines[0].gpus = {{"A GPU", "0000:01:00.0"}};
    world.parts.machines[0].gpu_links = {GpuLink::same};
  };
  const IndexSet both{0, 1};
  return spoil_all(machine, set(both, &Facts::gpu_built, built), set(both, &Facts::gpu_driver, driver),
                   set(both, &Facts::gpu_runtime, runtime),
                   set(both, &Facts::why_no_gpu, "CUDA_VISIBLE_DEVICES is empty"));
}

Spoil singleton(std::string mpi, bool open_mpi_launcher) {
  return spoil_all(
      set({0}, &Facts::mpi, std::move(mpi)), set({0}, &Facts::launcher_variable, "PMI_SIZE"),
      set({0}, &Facts::launcher_size, 4), set({0}, &Facts::launcher_command, "srun --mpi=pmix -n 4 PROGRAM"),
      set({0}, &Facts::open_mpi_launcher, open_mpi_launcher), set({0}, &Facts::pmi_launcher, !open_mpi_launcher));
}

Spoil setting(const IndexSet& ranks, Setting which, const std::string& value) {
  return [=](World& world) {
    for (const int rank : ranks.members()) {
      world.facts.at(static_cast<std::size_t>(rank)).settings.at(static_cast<std::size_t>(which)) = value;
    }
  };
}

Spoil unreadable(int rank, const IndexSet& neighbours, int error) {
  return spoil_all(set({rank}, &Facts::unreadable, neighbours), set({rank}, &Facts::read_error, error));
}

void another_machine(World& world) {
  MachineShape other = world.parts.machines[0];
  other.model = "Other";
  world.parts.nodes[1].machine = world.parts.intern(other);
  for (const int rank : {2, 3}) {
    world.parts.members.at(static_cast<std::size_t>(rank)).place =
        world.parts.intern(Place{.machine = 1, .pus = {rank - 2}});
  }
}

// A second node with one member only.
void smaller_second_node(World& world) {
  world.parts.members.resize(9);
  world.facts.resize(9);
}

const IndexSet first_two{0, 1};

const std::vector<Case> cases = {
    {"singletons", "launcher", Grade::broken, "0", "srun --mpi=pmix", 1, 1, singleton("Open MPI 4.1.4", false)},
    {"foreign_pmi", "MPI library", Grade::broken, "0", "mpirun.openmpi", 1, 1, singleton("Open MPI 4.1.4", false)},
    {"foreign_ompi", "MPI library", Grade::broken, "0", "mpiexec.mpich", 1, 1, singleton("MPICH 4.0.2", true)},
    {"two_mpis", "MPI library", Grade::broken, "1", "/b/libmpich.so.12", 1, 2,
     set({1}, &Facts::mpi_libraries, std::vector<std::string>{"/a/libmpi.so.40", "/b/libmpich.so.12"})},
    {"mpi_differs", "MPI library", Grade::broken, "3", "Open MPI 4.1.5 on rank 3", 2, 2,
     set({3}, &Facts::mpi, "Open MPI 4.1.5")},
    {"version", "build", Grade::broken, "2-3", "0.2.0 (abc) on ranks 2-3", 3, 2, set({2, 3}, &Facts::version, "0.2.0")},
    {"commit", "build", Grade::broken, "0", "0.1.0 (def) on rank 0", 1, 3, set({0}, &Facts::commit, "def")},
    {"cuda", "build", Grade::broken, "1", "CUDA not built in on rank 1", 1, 3, set({1}, &Facts::cuda, "not built in")},
    {"timeout", "settings", Grade::broken, "1", "LOCKSTEP_TIMEOUT is 300s on ranks 0,2 and 5 on rank 1", 1, 3,
     setting({1}, Setting::timeout, "5")},
    {"log", "settings", Grade::note, "1", "LOCKSTEP_LOG", 1, 3, setting({1}, Setting::log, "debug")},
    {"unknown", "settings", Grade::note, "0-1", "TIMOUT", 1, 2,
     set(first_two, &Facts::setting_warnings, std::vector<std::string>{"LOCKSTEP_TIMOUT does not exist"})},
    {"xml", "hwloc", Grade::slow, "1", "unset HWLOC_XMLFILE", 1, 2,
     set({1}, &Facts::hwloc_override, "HWLOC_XMLFILE=/x.xml")},
    {"slow_clock", "clock", Grade::slow, "2-3", "hpet", 2, 2,
     spoil_all(set({2, 3}, &Facts::clock_ns, 1100.0), set({2, 3}, &Facts::clock_source, "hpet"))},
    {"skew", "clock", Grade::note, "1", "3600 s ahead", 2, 1,
     set({1}, &Facts::wall_clock_ns, std::int64_t{3'600'000'000'000})},
    {"models", "machines", Grade::note, "2-3", "Other with 4 cores on ranks 2-3", 3, 2, another_machine},

    {"one_core", "binding", Grade::slow, "0-3", "4 ranks bound to 1 core while 3 that they may use are idle", 1, 4,
     place(IndexSet::range(0, 3), {0})},
    {"uneven", "binding", Grade::slow, "0-1", "others have spare cores", 1, 4,
     spoil_all(place({0, 1}, {0}), place({2}, {1}), place({3}, {2, 3}))},
    {"unbound", "binding", Grade::note, "0-1", "--map-by numa", 1, 2, place(first_two, IndexSet::range(0, 3))},
    {"oversubscribed", "cores", Grade::slow, "0-7", "8 ranks on 4 cores", 2, 8, smaller_second_node},
    {"cpuset", "cores", Grade::slow, "0-1", "2 ranks on 1 core", 1, 2,
     spoil_all(place(first_two, {0}), set(first_two, &Facts::reachable_pus, IndexSet{0}))},
    {"quota", "CPU quota", Grade::slow, "0-1", "1.5 cores to 2 ranks", 1, 2,
     spoil_all(place({0}, {0}, 1.5), place({1}, {1}, 1.5))},
    {"quota_pod", "CPU quota", Grade::slow, "0-1", "resources.limits.cpu", 1, 2,
     spoil_all(place(first_two, first_two, 1), contained("kubernetes"))},
    {"shared_machine", "cores", Grade::slow, "0-5", "6 ranks of 2 nodes on 4 cores", 2, 3,
     set(IndexSet::range(0, 5), &Facts::kernel, "one")},
    {"no_yield_shared", "waiting", Grade::note, "0-5", "mpi_yield_when_idle 1", 2, 3,
     set(IndexSet::range(0, 5), &Facts::kernel, "one")},
    {"no_yield", "waiting", Grade::note, "0-4", "mpi_yield_when_idle 1", 1, 5, [](World&) {}},

    {"shm_full", "shared memory", Grade::slow, "0-1", "32 MiB for each rank", 1, 2,
     shared(first_two, 32 * mebibyte, ENOSPC)},
    {"shm_tiny", "shared memory", Grade::slow, "0-1", "the engine needs 4 MiB", 1, 2, shared(first_two, 65536, ENOSPC)},
    {"shm_docker", "shared memory", Grade::slow, "0", "docker run --shm-size=1g", 1, 1,
     spoil_all(shared({0}, 32 * mebibyte, ENOSPC), contained("docker"))},
    {"shm_pod", "shared memory", Grade::slow, "0", "emptyDir", 1, 1,
     spoil_all(shared({0}, 32 * mebibyte, ENOSPC), contained("kubernetes"))},
    {"shm_none", "shared memory", Grade::broken, "0-1", "nothing can be allocated", 1, 2, shared(first_two, 0, ENOSPC)},
    {"shm_read_only", "shared memory", Grade::broken, "0-1", "remount,rw", 1, 2, shared(first_two, 0, EROFS)},
    {"shm_missing", "shared memory", Grade::broken, "1", "mkdir -p /dev/shm", 2, 1, shared({1}, 0, ENOENT)},
    {"shm_forbidden", "shared memory", Grade::broken, "0-1", "chmod 1777", 1, 2, shared(first_two, 0, EACCES)},
    {"shm_file_limit", "shared memory", Grade::slow, "0-1", "ulimit -f", 1, 2, shared(first_two, 4096, EFBIG)},
    {"shm_disk", "shared memory", Grade::slow, "1", "on disk", 2, 1, set({1}, &Facts::shared_memory_is_disk, true)},
    {"split_host", "node sharing", Grade::slow, "0-1", "--pid=host", 2, 1,
     spoil_all(set(first_two, &Facts::kernel, "one"), set(first_two, &Facts::host, "one"))},
    {"never", "huge pages", Grade::note, "1", "echo advise", 1, 2, set({1}, &Facts::huge_pages, "never")},
    {"deny", "huge pages", Grade::note, "0-1", "deny", 1, 2, set(first_two, &Facts::huge_pages, "deny")},
    {"yama", "neighbour memory", Grade::slow, "0-1", "only parents may read", 1, 2,
     spoil_all(unreadable(0, {1}, EPERM), unreadable(1, {0}, EPERM), set(first_two, &Facts::ptrace_scope, 1))},
    {"seccomp", "neighbour memory", Grade::slow, "0", "--cap-add=SYS_PTRACE", 1, 3,
     spoil_all(unreadable(0, {2}, EPERM), contained("docker"))},
    {"pid_spaces", "neighbour memory", Grade::slow, "0", "--pid=host", 1, 2, unreadable(0, {1}, ESRCH)},
    {"wrong_bytes", "neighbour memory", Grade::slow, "0", "something else is there", 1, 2, unreadable(0, {1}, 0)},
    {"doubted", "thresholds", Grade::note, "0-1", "2 processes: defaults; 3 not believed", 1, 2,
     set(first_two, &Facts::unsure_thresholds, std::vector<std::string>{"2 processes: defaults; 3 not believed"})},
    {"never_quiet", "thresholds", Grade::note, "0", "rm cache/lockstep/node-1.txt", 1, 2,
     spoil_all(set({0}, &Facts::unsure_thresholds, std::vector<std::string>{"2 processes"}),
               set({0}, &Facts::final_threshold_files, std::vector<std::string>{"cache/lockstep/node-1.txt"}))},
    {"memlock", "locked memory", Grade::slow, "0", "ulimit -l unlimited", 1, 2,
     spoil_all(set({0}, &Facts::rdma, true), set({0}, &Facts::locked_memory, ResourceGrant{16 * mebibyte, 0, ENOMEM}))},
    {"files", "open files", Grade::slow, "0-1", "ulimit -n 65536", 1, 2, set(first_two, &Facts::open_files, 64U)},
    {"files_hard", "open files", Grade::slow, "0", "limits.conf", 1, 2,
     spoil_all(set({0}, &Facts::open_files, 64U), set({0}, &Facts::open_files_hard, 64U))},

    {"bridge", "network", Grade::slow, "0-3", "btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24", 2,
     2, address(first_two, 0, "172.17.0.1/16")},
    {"bridge_only", "network", Grade::broken, "0-1", "btl_tcp_if_exclude 127.0.0.0/8,172.17.0.0/16", 2, 1,
     spoil_all(address(first_two, 1, "10.%.0.1/24", false), address(first_two, 0, "172.17.0.1/16"))},
    {"partial", "network", Grade::slow, "0-1", "only 2 of 3 nodes are in 10.9.0.0/16 (ib0)", 3, 1,
     address(first_two, 2, "10.9.0.%/16")},
    {"partial_six", "network", Grade::slow, "0", "btl_tcp_if_include eth0 ", 2, 1,
     spoil_all(address(first_two, 1, "fd00::%/64", false), address({0}, 2, "fd01::1/64"))},
    {"mpich_interface", "network", Grade::slow, "0", "mpiexec -iface eth0", 2, 1,
     spoil_all(set(first_two, &Facts::mpi, "MPICH 4.0.2"), address({0}, 2, "10.9.0.1/16"))},
    {"routed", "network", Grade::note, "0-1", "router", 2, 1, address(first_two, 1, "10.%.0.1/24", false)},
    {"shaped", "network", Grade::slow, "0-3",
     "from node0 to node1: 951 Mbit/s measured; eth0 claims 10000, and 1 more link", 2, 2,
     spoil_all(set({0}, &Facts::link_mbit_per_s, 956.0), set({2}, &Facts::link_mbit_per_s, 950.7))},
    {"shaped_one", "network", Grade::slow, "1", "tc qdisc show dev eth0", 3, 1,
     spoil_all(set({0}, &Facts::link_mbit_per_s, 9000.0), set({1, 2}, &Facts::link_mbit_per_s, 90.0))},
    {"shaped_one_way", "network", Grade::slow, "0-1", "from node0 to node1: 90 Mbit/s measured", 2, 1,
     spoil_all(set({0}, &Facts::link_mbit_per_s, 9000.0), set({1}, &Facts::link_mbit_per_s, 90.0))},
    {"one_machine", "machines", Grade::note, "0-1", "2 nodes share one machine (same boot id)", 3, 1,
     set(first_two, &Facts::kernel, "one")},
    {"virtual_nodes", "machines", Grade::note, "0-1", "2 nodes share one machine (same boot id)", 3, 1,
     spoil_all(set({0}, &Facts::kernel, "cf4b3490-087e-4a24-99a4-d5beafba4604"),
               set({1}, &Facts::kernel, "cf4b3490-087e-4a24-99a4-a4f511509db8"),
               set({2}, &Facts::kernel, "cf4b3490-087e-4a24-8801-d5beafba4604"))},

    {"old_driver", "GPU driver", Grade::broken, "0-1", "knows CUDA 12.4, this build needs 13.0", 1, 2,
     idle_gpu(true, 12040, 13000)},
    {"no_driver", "GPU driver", Grade::note, "0-1", "1 GPU in the machine, but no driver", 1, 2,
     idle_gpu(true, 0, 13000)},
    {"no_cuda", "GPU driver", Grade::note, "0-1", "-Dcuda=enabled", 1, 2, idle_gpu(false, 0, 0)},
    {"hidden", "GPU driver", Grade::note, "0-1", "CUDA_VISIBLE_DEVICES is empty", 1, 2, idle_gpu(true, 13000, 13000)},
    {"some_gpus", "GPU driver", Grade::slow, "1", "while rank 0 sees one", 1, 2, gpus(0, {"GPU-a"})},
    {"two_drivers", "GPU driver", Grade::note, "1", "13.1 on rank 1", 2, 1,
     spoil_all(gpus(0, {"GPU-a"}), gpus(1, {"GPU-b"}), set({1}, &Facts::gpu_driver, 13010))},
    {"one_gpu", "GPU sharing", Grade::slow, "0,2", "GPU-a", 1, 3,
     spoil_all(gpus(0, {"GPU-a"}), gpus(1, {"GPU-b"}), gpus(2, {"GPU-a"}))},
    {"first_gpu", "GPU sharing", Grade::note, "0-1", "GPU-a, of 2", 1, 2,
     spoil_all(gpus(0, {"GPU-a", "GPU-b"}), gpus(1, {"GPU-a", "GPU-b"}))},

    {"prohibited", "GPU state", Grade::broken, "1", "prohibited", 1, 2, gpu_state(1, VisibleGpu::prohibited)},
    {"exclusive", "GPU state", Grade::note, "0", "nvidia-smi -c DEFAULT", 1, 2, gpu_state(0, VisibleGpu::exclusive)},
    {"slice", "GPU state", Grade::note, "1", "MIG", 1, 2, gpu_state(1, VisibleGpu::slice)},
    {"no_ecc", "GPU state", Grade::note, "0", "ECC is off", 1, 2, gpu_state(0, VisibleGpu::no_ecc)},
    {"no_nccl", "NCCL", Grade::slow, "1", "libnccl.so.2 is not there", 1, 2, nccl("2.28.9", "")},
    {"two_nccls", "NCCL", Grade::broken, "1", "2.27.3 on rank 1", 1, 3,
     spoil_all(nccl("2.28.9", "2.27.3"), gpus(2, {"GPU-c"}), set({2}, &Facts::nccl, "2.28.9"))},
};

std::size_t row_of(std::string_view name) {
  const auto found = std::ranges::find(checks(), name, &DoctorCheck::name);
  if (found == checks().end()) throw Error(Code::internal, text("there is no check \"", name, "\""));
  return static_cast<std::size_t>(found - checks().begin());
}

class DoctorFires : public testing::TestWithParam<Case> {};

TEST_P(DoctorFires, NamingRanksAndMend) {
  const Case& each = GetParam();
  World world = healthy(each.nodes, each.ranks_per_node);
  each.spoil(world);
  const CheckOutcome outcome = world.diagnose().outcomes.at(row_of(each.check));
  ASSERT_EQ(outcome.findings.size(), 1U);
  const Finding& finding = outcome.findings[0];
  EXPECT_EQ(to_string(finding.grade), to_string(each.grade));
  EXPECT_EQ(finding.ranks.to_string(), each.ranks);
  const std::string said = text(finding.what, "\n", finding.fix);
  EXPECT_NE(said.find(each.says), std::string::npos) << said;
  EXPECT_FALSE(finding.why.empty());
  EXPECT_FALSE(finding.fix.empty());
}

INSTANTIATE_TEST_SUITE_P(All, DoctorFires, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<Case>& each) { return each.param.name; });

TEST(Doctor, EveryCheckHasATestThatMakesItFire) {
  for (const DoctorCheck& check : checks()) {
    EXPECT_NE(std::ranges::find(cases, check.name, &Case::check), cases.end()) << check.name;
    EXPECT_FALSE(check.looks_at.empty()) << check.name;
  }
}

TEST(Doctor, IsSilentWhereAllIsWell) {
  for (const auto& [nodes, ranks] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 1}, {3, 4}}) {
    const Diagnosis diagnosis = healthy(nodes, ranks).diagnose();
    for (std::size_t i = 0; i < checks().size(); ++i) {
      EXPECT_TRUE(diagnosis.outcomes[i].findings.empty()) << checks()[i].name << ", " << nodes << " x " << ranks;
      EXPECT_FALSE(diagnosis.outcomes[i].summary.empty()) << checks()[i].name;
    }
    EXPECT_EQ(diagnosis.worst(), Grade::ok);
  }
}

void only_rank_0(World& world) {
  world.facts.resize(1);
  world.parts.members.resize(1);
  world.parts.nodes.resize(1);
}

// What looks suspicious and is not; two nodes with two ranks each.
TEST(Doctor, DoesNotReportIntendedSettings) {
  const IndexSet all = IndexSet::range(0, 3);
  const Spoil one_kernel = set(all, &Facts::kernel, "one");
  const Spoil claims_nothing = [](World& world) { world.parts.machines[0].nics[1].mbit_per_s = 0; };
  const std::vector<std::pair<std::string_view, Spoil>> harmless = {
      {"launcher", spoil_all(only_rank_0, singleton("Open MPI 4.1.4", false), set({0}, &Facts::cluster_named, true))},
      {"MPI library", singleton("Open MPI 4.1.4", true)},
      {"clock", spoil_all(one_kernel, set({1}, &Facts::wall_clock_ns, std::int64_t{60'000'000'000}))},
      {"waiting", spoil_all(place({0, 1}, {0}), set(all, &Facts::yields, true))},
      {"waiting", spoil_all(place({0, 1}, {0}), set(all, &Facts::mpi, "MPICH 4.0.2"))},
      {"shared memory", set(all, &Facts::shared_memory, ResourceGrant{mebibyte, mebibyte, 0})},
      {"locked memory", set(all, &Facts::locked_memory, ResourceGrant{16 * mebibyte, 0, ENOMEM})},
      {"node sharing", one_kernel},  // virtual nodes have host names of their own
      {"node sharing", spoil_all(one_kernel, set(all, &Facts::host, "one"), shared(all, 0, EROFS))},
      {"huge pages", set(all, &Facts::huge_pages, "")},
      {"thresholds", set(all, &Facts::thresholds, std::vector<std::string>{"2 processes: measured in 5 jobs"})},
      {"network", spoil_all(one_kernel, address({0, 1}, 0, "172.17.0.1/16"))},
      {"network", spoil_all(address({0, 1}, 1, "2001:db8::%/128"), address({0}, 1, "no address"))},
      {"network", set(all, &Facts::link_mbit_per_s, 2100.0)},  // one connection of ranks that share cores
      {"network", spoil_all(claims_nothing, set(all, &Facts::link_mbit_per_s, 10.0))},
      {"binding", place({0}, {0, 1})},
      {"CPU quota", spoil_all(place({0}, {0}, 2), place({1}, {1}, 2))},
      {"GPU sharing", spoil_all(gpus(0, {"a", "b"}), gpus(1, {"b", "a"}), gpus(2, {"c"}), gpus(3, {"d"}))},
  };
  for (std::size_t i = 0; i < harmless.size(); ++i) {
    World world = healthy(2, 2);
    harmless[i].second(world);
    const CheckOutcome outcome = world.diagnose().outcomes.at(row_of(harmless[i].first));
    for (const Finding& finding : outcome.findings) {
      ADD_FAILURE() << i << " " << harmless[i].first << ": " << finding.what;
    }
  }
}

TEST(Doctor, JoinsEqualFindingsOfManyRanks) {
  World world = healthy(16, 4);
  set(IndexSet::range(0, 63), &Facts::huge_pages, "never")(world);
  const CheckOutcome outcome = world.diagnose().outcomes.at(row_of("huge pages"));
  ASSERT_EQ(outcome.findings.size(), 1U);
  EXPECT_EQ(outcome.findings[0].ranks.to_string(), "0-63");
}

TEST(Doctor, RefusesFactsThatDoNotFitTheTopology) {
  World world = healthy(1, 2);
  world.facts.pop_back();
  EXPECT_THROW(world.diagnose(), Error);
}

}  // namespace
}  // namespace lockstep::command
