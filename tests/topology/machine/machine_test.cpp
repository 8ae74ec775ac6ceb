// SPDX-License-Identifier: Apache-2.0
// Reading machines: hwloc's synthetic ones, XML in a child, interfaces, launcher
// variables, real sharing of memory, and the watch over calls that hang.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <mutex>
#include <thread>

#include "tests/support/folder.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"
#include "topology/description.hpp"
#include "topology/machine/child.hpp"
#include "topology/machine/device.hpp"
#include "topology/machine/discover.hpp"
#include "topology/machine/hang_watchdog.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/network.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/share.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::on_threads;
using namespace std::chrono_literals;

using test::refusal;

TEST(Synthetic, MachinesHaveTheLevelsThatWereDescribed) {
  const MachineShape machine = read_synthetic_machine("package:2 numa:2 l3:1 core:4 pu:2");
  EXPECT_EQ(machine.packages(), 2);
  EXPECT_EQ(machine.numas(), 4);
  EXPECT_EQ(machine.l3s(), 4);
  EXPECT_EQ(machine.cores(), 16);
  EXPECT_EQ(machine.pus.size(), 32U);
  EXPECT_EQ(machine.pus.back().package, 1);
  EXPECT_EQ(machine.pus.back().numa, 3);
  EXPECT_TRUE(machine.gpus.empty());
}

TEST(Synthetic, MemoryAtTwoLevelsGivesTheNearerOne) {
  const MachineShape machine = read_synthetic_machine("package:2 [numa] l3:2 [numa] core:2 pu:1");
  EXPECT_EQ(machine.numas(), 4);
}

TEST(Synthetic, RefusesNonsense) {
  for (const char* junk :
       {"", "core:4", "nonsense:3 pu:1", "pu:0", "core:-1 pu:1", "package:2 pu:x", "((((", "pu:1 core:2"}) {
    const std::string what = refusal([&] { read_synthetic_machine(junk); }, Code::bad_description);
    EXPECT_NE(what.find(" -> "), std::string::npos);
  }
}

TEST(Synthetic, HugeDescriptionsEndInTime) {
  const auto begin = std::chrono::steady_clock::now();
  refusal([] { read_synthetic_machine("core:60000 pu:1"); }, Code::bad_description);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

TEST(Synthetic, ADescribedClusterIsATopology) {
  const Topology topology = topology_from_description("4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)", 0);
  EXPECT_EQ(topology.node_count(), 4);
  EXPECT_EQ(topology.size(), 16);  // one member for each GPU
  EXPECT_EQ(topology.closest_gpus(5), (std::vector<int>{1}));
  EXPECT_EQ(topology.link(0, 1), Link::same_package);
  EXPECT_EQ(topology.machine_of(0).nics.at(0).mbit_per_s, 25000);
  EXPECT_EQ(topology_from_description("2 x node(core:4 pu:1 ranks:3) + node(core:2 pu:1)", 1).size(), 7);
}

TEST(ThisMachine, IsReadAndAgreesWithTheSystem) {
  const MachineShape machine = read_this_machine(Log());
  EXPECT_GE(static_cast<long>(machine.pus.size()), ::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_NO_THROW(machine.check());
  const IndexSet allowed = allowed_pus(machine);
  EXPECT_FALSE(allowed.empty());
  EXPECT_LE(allowed.size(), machine.pus.size());
}

// Machines that people have: files of hwloc's own tests, fetched by tests/topology/fetch_xml.
struct Expected {
  int packages, numas, l3s, cores, pus, gpus, nvlinks;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const Expected& each, std::ostream* out) {
  *out << each.packages << " packages, " << each.numas << " numas, " << each.l3s << " l3s, " << each.cores << " cores, "
       << each.pus << " pus, " << each.gpus << " gpus, " << each.nvlinks << " nvlinks";
}
bool operator==(const Expected& a, const Expected& b) {
  return a.packages == b.packages && a.numas == b.numas && a.l3s == b.l3s && a.cores == b.cores && a.pus == b.pus &&
         a.gpus == b.gpus && a.nvlinks == b.nvlinks;
}

Expected summary(const MachineShape& machine) {
  int nvlinks = 0;
  for (const GpuLink link : machine.gpu_links) nvlinks += link == GpuLink::nvlink ? 1 : 0;
  return {machine.packages(),
          machine.numas(),
          machine.l3s(),
          machine.cores(),
          static_cast<int>(machine.pus.size()),
          static_cast<int>(machine.gpus.size()),
          nvlinks};
}

fs::path xml_folder() {
  const char* folder = std::getenv("XML_FOLDER");
  return folder == nullptr ? fs::path() : fs::path(folder);
}

class RealMachine : public testing::TestWithParam<std::pair<const char*, Expected>> {};

TEST_P(RealMachine, IsReadFromItsXml) {
  const auto& [name, expected] = GetParam();
  const fs::path path = xml_folder() / name;
  if (xml_folder().empty() || !fs::exists(path)) {
    GTEST_SKIP() << test::lacks("the XML files of hwloc's source package (tests/topology/fetch_xml needs the network)");
  }
  const MachineShape machine = read_xml_machine(path.string());
  EXPECT_EQ(summary(machine), expected);
  const Topology topology = topology_from_xml({path.string()}, 3, 2);
  EXPECT_EQ(topology.size(), 6);
  EXPECT_EQ(topology.machines().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Files, RealMachine,
    testing::Values(std::pair("power8gpudistances.xml", Expected{2, 2, 8, 8, 16, 4, 4}),
                    std::pair("24em64t-2n6c2t-pci.xml", Expected{2, 2, 2, 12, 24, 4, 0}),
                    std::pair("96em64t-4n4d3ca2co-pci.xml", Expected{16, 4, 16, 96, 96, 1, 0}),
                    std::pair("16em64t-4s2c2t.xml", Expected{4, 1, 4, 8, 16, 0, 0}),
                    std::pair("192em64t-12gr2n8c2t.xml", Expected{24, 24, 24, 192, 384, 0, 0}),
                    std::pair("64intel64-3g2n+2n-irregulargroups+pci.xml", Expected{8, 8, 8, 64, 64, 2, 0}),
                    std::pair("28intel64-2p2g7c-CoDgroups.v1.xml", Expected{2, 4, 0, 28, 28, 0, 0}),
                    std::pair("16intel64-manyVFs.xml", Expected{2, 2, 2, 16, 16, 0, 0}),
                    std::pair("64intel64-fakeKNL-SNC4-hybrid.xml", Expected{1, 4, 4, 16, 64, 0, 0})));

TEST(Xml, ThisMachineComesBackFromItsOwnExport) {
  const Folder folder;
  const std::string path = (folder.path() / "this.xml").string();
  if (std::system(text("lstopo-no-graphics --of xml --whole-io --disallowed ", path, " 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << test::lacks("lstopo-no-graphics (package hwloc-nox or hwloc)");
  }
  const MachineShape live = read_this_machine(Log());
  const MachineShape read = read_xml_machine(path);
  EXPECT_EQ(read.pus, live.pus);
  EXPECT_EQ(read.model, live.model);
  EXPECT_EQ(read.memory_gib, live.memory_gib);
}

TEST(Xml, BrokenFilesAreErrorsAndNeverCrashes) {
  const Folder folder;
  const std::string whole =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
      "version=\"2.0\">\n"
      "  <object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" allowed_cpuset=\"0x1\" "
      "nodeset=\"0x1\" "
      "complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n"
      "    <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
      "complete_nodeset=\"0x1\" gp_index=\"2\" local_memory=\"1024\"/>\n"
      "    <object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
      "complete_nodeset=\"0x1\" gp_index=\"3\"/>\n"
      "  </object>\n</topology>\n";
  folder.write("good.xml", whole);
  ASSERT_EQ(read_xml_machine((folder.path() / "good.xml").string()).pus.size(), 1U);
  for (std::size_t size = 0; size + 20 < whole.size(); size += 61) {
    folder.write("cut.xml", whole.substr(0, size));
    refusal([&] { read_xml_machine((folder.path() / "cut.xml").string()); }, Code::bad_xml);
  }
  // Known to crash the importer of some versions: an object without its complete set.
  std::string lacking = whole;
  const std::string part = " complete_cpuset=\"0x1\"";
  for (std::size_t at = lacking.find(part); at != std::string::npos; at = lacking.find(part))
    lacking.erase(at, part.size());
  folder.write("lacking.xml", lacking);
  try {
    read_xml_machine((folder.path() / "lacking.xml").string());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_xml);
  }
  refusal([&] { read_xml_machine("/no/such/file.xml"); }, Code::bad_xml);
  refusal([&] { read_xml_machine(folder.path().string()); }, Code::bad_xml);
}

TEST(Child, KeepsCrashesAndErrorsToItself) {
  EXPECT_EQ(to_string(run_in_child("work", Code::bad_xml, [] { return to_bytes("answer"); })), "answer");
  EXPECT_TRUE(run_in_child("work", Code::bad_xml, [] { return Bytes{}; }).empty());
  EXPECT_EQ(run_in_child("work", Code::bad_xml, [] { return Bytes(1'000'000); }).size(), 1'000'000U);
  const std::string crash = refusal(
      [] {
        run_in_child("work", Code::bad_xml, []() -> Bytes {
          ::raise(SIGKILL);
          return {};
        });
      },
      Code::bad_xml);
  EXPECT_NE(crash.find("crashed (signal 9"), std::string::npos) << crash;
  const std::string thrown =
      refusal([] { run_in_child("work", Code::bad_xml, []() -> Bytes { throw std::runtime_error("inside"); }); },
              Code::bad_xml);
  EXPECT_NE(thrown.find("inside"), std::string::npos);
  refusal([] { run_in_child("work", Code::bad_xml, []() -> Bytes { ::_exit(3); }); }, Code::bad_xml);
}

TEST(Network, InfinibandRatesAreRead) {
  EXPECT_EQ(parse_infiniband_rate("100 Gb/sec (4X EDR)"), 100000);
  EXPECT_EQ(parse_infiniband_rate("2.5 Gb/sec"), 2500);
  for (const char* junk : {"", "fast", "100", "x Gb/sec"}) EXPECT_EQ(parse_infiniband_rate(junk), std::nullopt) << junk;
}

TEST(Network, InterfacesAreUpHaveAddressesAndAreNotTheLoopback) {
  for (const LocalNic& nic : read_nics()) {
    EXPECT_NE(nic.nic.name, "lo");
    for (const std::string& address : nic.addresses) EXPECT_NE(address.find('/'), std::string::npos);
  }
}

Environment environment_of(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const char* name) -> const char* {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launcher, ThatMeantManyIsRecognisedWithTheCommandToType) {
  EXPECT_EQ(launcher_hint(environment_of({})), std::nullopt);
  const auto hint = launcher_hint(environment_of({{"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_STEP_ID", "0"}}));
  ASSERT_TRUE(hint);
  EXPECT_EQ(hint->size, 16);
  EXPECT_NE(hint->command.find("srun --mpi=pmix -n 16"), std::string::npos);
  EXPECT_EQ(launcher_hint(environment_of({{"OMPI_COMM_WORLD_SIZE", "4"}}))->variable, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(launcher_hint(environment_of({{"PMI_SIZE", "4"}}))->variable, "PMI_SIZE");
  EXPECT_EQ(launcher_hint(environment_of({{"WORLD_SIZE", "4"}, {"RANK", "0"}}))->size, 4);
}

TEST(Launcher, ThatLetsOthersGoOnWhenAProcessDies) {
  EXPECT_FALSE(launcher_keeps_survivors(environment_of({})));
  EXPECT_FALSE(launcher_keeps_survivors(environment_of({{"OMPI_MCA_orte_enable_recovery", "0"}})));
  EXPECT_TRUE(launcher_keeps_survivors(environment_of({{"OMPI_MCA_orte_enable_recovery", "1"}})));
}

TEST(Launcher, OneProcessAndBatchScriptsAndJunkAreLetThrough) {
  EXPECT_EQ(launcher_hint(environment_of({{"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"}})), std::nullopt)
      << "a batch script outside a step";
  EXPECT_EQ(launcher_hint(environment_of({{"OMPI_COMM_WORLD_SIZE", "1"}})), std::nullopt);
  EXPECT_EQ(launcher_hint(environment_of({{"WORLD_SIZE", "4"}})), std::nullopt)
      << "without a RANK it is somebody's own variable";
  EXPECT_EQ(launcher_hint(
                environment_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}})),
            std::nullopt)
      << "mpirun -n 1 inside a job step";
  for (const char* junk : {"", "many", "-3", "99999999999999999999", "4x"}) {
    EXPECT_EQ(launcher_hint(environment_of({{"PMI_SIZE", junk}})), std::nullopt) << junk;
  }
}

TEST(Launcher, RankAndTfConfig) {
  EXPECT_EQ(launcher_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}})), 3);
  EXPECT_EQ(launcher_rank(environment_of({{"RANK", "3"}})), std::nullopt) << "alone it is somebody's own variable";
  EXPECT_EQ(launcher_rank(environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})), std::nullopt)
      << "a batch script";
  EXPECT_EQ(launcher_rank(environment_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}})), std::nullopt);
  EXPECT_EQ(launcher_rank(environment_of({{"PMI_RANK", "x"}})), std::nullopt);
  EXPECT_EQ(launcher_rank(environment_of({})), std::nullopt);
  EXPECT_TRUE(tf_config_names_cluster(environment_of({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}})"}})));
  EXPECT_FALSE(tf_config_names_cluster(environment_of({{"TF_CONFIG", "{}"}})));
}

TEST(Share, ThreadsOfOneProcessAreOneNodeForEachColour) {
  on_threads(6, [&](Exchange& exchange) {
    const SharedNodes nodes = find_shared_nodes(exchange, exchange.rank() < 4 ? 0 : 4);
    EXPECT_EQ(nodes.representative, (std::vector<int>{0, 0, 0, 0, 4, 4}));
    EXPECT_TRUE(nodes.remarks.empty());
  });
}

TEST(Discover, ThreadsFindOneNodeAndAgree) {
  std::vector<std::uint64_t> fingerprints(4);
  on_threads(4, [&](Exchange& exchange) {
    const Topology topology = discover(exchange, 0, read_visible_gpus());
    ASSERT_EQ(topology.size(), 4);
    ASSERT_EQ(topology.node_count(), 1);
    fingerprints[static_cast<std::size_t>(exchange.rank())] = topology.fingerprint();
  });
  for (const auto each : fingerprints) EXPECT_EQ(each, fingerprints[0]);
}

TEST(Discover, GpusSeenByMembersAreTheNodesGpus) {
  on_threads(2, [&](Exchange& exchange) {
    VisibleGpus devices;
    devices.gpus = {{"H200", text("GPU-", exchange.rank()), text("0000:0", exchange.rank(), ":00.0"), 1},
                    {"H200", "GPU-both", "0000:09:00.0", 1}};
    const Topology topology = discover(exchange, 0, devices);
    ASSERT_EQ(topology.machine_of(0).gpus.size(), 3U);
    ASSERT_EQ(topology.node(0).gpu_ids.size(), 3U);
    ASSERT_EQ(topology.place_of(exchange.rank()).gpus.size(), 2U);
    ASSERT_EQ(topology.node(0).gpu_ids[static_cast<std::size_t>(topology.place_of(1).gpus[0])], "GPU-1");
  });
}

// GPU 0 is seen by rank 0, 3 by rank 1, and 1 and 2 by both, of which each has been told of some only.
TEST(Discover, LinksBetweenGpusAreAsCudaTellsThem) {
  on_threads(2, [&](Exchange& exchange) {
    const auto gpu = [](int number, std::map<std::string, bool> reaches) {
      return VisibleGpu{"H200", text("GPU-", number), text("0000:0", number, ":00.0"), 1, {}, std::move(reaches)};
    };
    VisibleGpus devices;
    if (exchange.rank() == 0)
      devices.gpus = {gpu(0, {{"GPU-1", true}, {"GPU-2", false}}), gpu(1, {{"GPU-0", true}}), gpu(2, {})};
    else
      devices.gpus = {gpu(1, {{"GPU-3", true}, {"GPU-2", false}}), gpu(2, {{"GPU-1", false}}), gpu(3, {})};
    const Topology topology = discover(exchange, 0, devices);
    const MachineShape& machine = topology.machine_of(0);
    ASSERT_EQ(machine.gpus.size(), 4U);
    EXPECT_EQ(machine.gpu_link(0, 0), GpuLink::same);
    EXPECT_EQ(machine.gpu_link(0, 1), GpuLink::peer);
    EXPECT_EQ(machine.gpu_link(1, 0), GpuLink::peer);
    EXPECT_EQ(machine.gpu_link(1, 3), GpuLink::peer) << "as the other member was told";
    EXPECT_EQ(machine.gpu_link(1, 2), GpuLink::via_host) << "told that they do not";
    EXPECT_EQ(machine.gpu_link(0, 3), GpuLink::via_host) << "nobody sees both: as hwloc has it";
    EXPECT_EQ(to_string(machine.gpu_link(0, 1)), "peer");
  });
}

TEST(VisibleGpus, WithoutGpusItSaysWhy) {
  const VisibleGpus devices = read_visible_gpus();
  EXPECT_EQ(devices.gpus.empty(), !devices.why_none.empty());
}

TEST(HangWatchdog, WarnsAndEndsHangingCalls) {
  std::vector<std::string> lines;
  std::mutex mutex;
  std::latch ended(1);
  const Log log(LogLevel::warn, [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  {
    const HangWatchdog watch(
        "MPI_Sleep", [] { return "look here"; }, {20ms, 60ms}, log, [&] { ended.count_down(); });
    ended.wait();
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[1].find("LOCKSTEP-E009"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("MPI_Sleep has not come back for 60 ms -> look here; LOCKSTEP_TIMEOUT"), std::string::npos)
      << lines[1];
}

TEST(HangWatchdog, IgnoresCallsThatReturn) {
  bool ended = false;
  for (const WaitLimits wait_limits :
       {WaitLimits{10s, 20s}, WaitLimits{0s, 0s}, WaitLimits{0s, 10s}, WaitLimits{10s, 0s}}) {
    const HangWatchdog watch(
        "MPI_Quick", [] { return ""; }, wait_limits, Log(LogLevel::off), [&] { ended = true; });
  }
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace lockstep
