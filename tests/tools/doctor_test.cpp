// SPDX-License-Identifier: Apache-2.0
// The doctor around its checks: facts as bytes, the tries on this machine, and the reports.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/threads.hpp"
#include "tests/tools/doctor_world.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/doctor_links.hpp"
#include "tools/lockstep/doctor_report.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Facts full_facts() {
  Facts facts = healthy_facts(3);
  facts.container = "docker";
  facts.launcher_variable = "PMI_SIZE";
  facts.launcher_size = 8;
  facts.launcher_command = "mpirun";
  facts.cluster_named = facts.pmi_launcher = facts.yields = facts.rdma = facts.shared_memory_is_disk = true;
  facts.hwloc_override = "HWLOC_XMLFILE=x";
  facts.setting_warnings = {"one", "", "two"};
  facts.lock_limit_bytes = 65536;
  facts.unreadable = {1, 5, 6, 7};
  facts.read_error = EPERM;
  facts.ptrace_scope = 2;
  facts.wall_clock_ns = -5;
  facts.gpu_driver = 12040;
  facts.gpu_runtime = 13000;
  facts.why_no_gpu = "why";
  facts.gpu_ids = {"GPU-a", "GPU-b"};
  return facts;
}

TEST(DoctorFacts, TravelAsBytes) {
  EXPECT_EQ(Facts::from_bytes(Facts().to_bytes()), Facts());
  const Facts facts = full_facts();
  EXPECT_EQ(Facts::from_bytes(facts.to_bytes()), facts);
}

TEST(DoctorFacts, CutAnywhereAreAnError) {
  const Bytes whole = full_facts().to_bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(Facts::from_bytes(std::span(whole).first(size)), Error) << size;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(Facts::from_bytes(longer), Error);
}

TEST(DoctorFacts, JunkIsAnErrorAndNothingWorse) {
  std::mt19937 random(7);
  const Bytes whole = full_facts().to_bytes();
  for (int round = 0; round < 2000; ++round) {
    Bytes spoilt = whole;
    for (int change = 0; change < 3; ++change) spoilt[random() % spoilt.size()] = static_cast<std::byte>(random());
    try {
      EXPECT_LE(Facts::from_bytes(spoilt).to_bytes().size(), 2 * whole.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_message);
    }
  }
}

// Threads as ranks: one process, so everybody may read everybody.
TEST(DoctorTries, SucceedAmongThreads) {
  World world = healthy(1, 3);
  for (Member& member : world.parts.members) member.process = ::getpid();
  const Topology topology = world.topology();
  run_local(3, [&](Exchange& exchange) {
    const auto all = try_and_gather(exchange, topology, healthy_facts(exchange.rank()));
    ASSERT_EQ(all.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      const Facts& facts = all[static_cast<std::size_t>(rank)];
      EXPECT_EQ(facts.host, text("node", rank));
      EXPECT_TRUE(facts.unreadable.empty()) << facts.read_error;
      EXPECT_GT(facts.shared_memory.wanted_bytes, 0U);
      EXPECT_LE(facts.shared_memory.got_bytes, wanted_shared_bytes);
      EXPECT_GT(facts.clock_ns, 0);
      EXPECT_GT(facts.wall_clock_ns, 0);
      EXPECT_FALSE(facts.reachable_pus.empty());
    }
  });
}

TEST(DoctorTries, NameANeighbourThatCannotBeRead) {
  World world = healthy(1, 2);
  for (Member& member : world.parts.members) member.process = 0x3fffffff;  // beyond the kernel's largest
  run_local(2, [&](Exchange& exchange) {
    const auto all = try_and_gather(exchange, world.topology(), healthy_facts(0));
    EXPECT_EQ(all[0].unreadable, IndexSet{1});
    EXPECT_EQ(all[1].unreadable, IndexSet{0});
    EXPECT_EQ(all[0].read_error, ESRCH);
  });
}

TEST(DoctorTries, NoticeWrongBytes) {
  const ProbeToken token;
  Bytes offer = token.offer();
  EXPECT_TRUE(read_token(::getpid(), offer).well);
  offer.back() ^= std::byte{1};
  const ReadResult result = read_token(::getpid(), offer);
  EXPECT_FALSE(result.well);
  EXPECT_EQ(result.error, 0);
  offer.pop_back();
  EXPECT_THROW(read_token(::getpid(), offer), Error);
}

TEST(DoctorTries, LeaveNoName) {
  const fs::path folder = fs::path(testing::TempDir()) / text("doctor-", ::getpid());
  fs::create_directory(folder);
  {
    const HeldMemory held(folder.string(), 3 * mebibyte + 4096, std::chrono::seconds(5));
    EXPECT_EQ(held.grant().got_bytes, 3 * mebibyte + 4096);
    EXPECT_EQ(held.grant().error, 0);
    EXPECT_TRUE(fs::is_empty(folder));
    const int file = open_unlinked(folder.string());
    ASSERT_GE(file, 0);
    struct stat status {};
    ASSERT_EQ(::fstat(file, &status), 0);
    EXPECT_EQ(status.st_nlink, 0U);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_TRUE(fs::is_empty(folder));
    ::close(file);
  }
  fs::remove(folder);
  const HeldMemory nowhere(folder.string(), mebibyte, std::chrono::seconds(5));
  EXPECT_EQ(nowhere.grant().error, ENOENT);
  EXPECT_EQ(nowhere.grant().got_bytes, 0U);
}

TEST(DoctorTries, StopInTime) {
  const HeldMemory held("/dev/shm", 64 * mebibyte, Duration{});
  EXPECT_EQ(held.grant().got_bytes, 0U);
  EXPECT_EQ(held.grant().error, 0);
}

// The kernel would end the process by a signal.
TEST(DoctorTries, RespectTheLimitOnFiles) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 100'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const HeldMemory held("/dev/shm", mebibyte, std::chrono::seconds(5));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(held.grant().error, EFBIG);
  EXPECT_LE(held.grant().got_bytes, 100'000U);
}

TEST(DoctorTries, KeepTheProcessorsOfTheThread) {
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int reachable = static_cast<int>(reachable_pus().size());
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_GE(reachable, CPU_COUNT(&before));
}

TEST(DoctorTries, LockMemoryOrSayWhyNot) {
  const ResourceGrant tried = try_lock(65536);
  EXPECT_TRUE(tried.got_bytes == 65536 || tried.error != 0);
  EXPECT_EQ(try_lock(0).error, 0);
  EXPECT_NE(try_lock(std::uint64_t{1} << 60).error, 0);
}

TEST(DoctorProbes, FindMpiLibrariesInAMap) {
  const std::string maps =
      "7f1 r-xp 0 08:01 5   /usr/lib/libmpi.so.40.30.4\n7f2 rw-p 0 08:01 5   /usr/lib/libmpi.so.40.30.4\n"
      "7f3 r-xp 0 08:01 6   /usr/lib/libmpi_cxx.so.40\n7f4 r-xp 0 08:01 7   /opt/mpich/lib/libmpich.so.12.2\n[heap]\n";
  EXPECT_EQ(mpi_libraries(maps),
            (std::vector<std::string>{"/usr/lib/libmpi.so.40.30.4", "/opt/mpich/lib/libmpich.so.12.2"}));
  EXPECT_TRUE(mpi_libraries("").empty());
}

TEST(DoctorProbes, ReadTheChosenWord) {
  EXPECT_EQ(chosen_word("always within_size advise [never] deny force"), "never");
  EXPECT_EQ(chosen_word(""), "");
  EXPECT_EQ(chosen_word("] odd ["), "");
}

TEST(DoctorProbes, ShareMemoryFairly) {
  EXPECT_EQ(fair_share_bytes(std::uint64_t{1} << 40, 4), 64 * mebibyte);
  EXPECT_EQ(fair_share_bytes(64 * mebibyte, 4), 8 * mebibyte);
  EXPECT_EQ(fair_share_bytes(10'000, 1), 4096U);
  EXPECT_EQ(fair_share_bytes(0, 0), 0U);
}

JobView view_of(const World& world, const Topology& topology) { return {world.facts, topology}; }

TEST(DoctorReport, IsOneLineForEachCheckOfAHealthyRun) {
  const World world = healthy(2, 4);
  const Topology topology = world.topology();
  const std::string report = report_text(view_of(world, topology), world.diagnose());
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(report, '\n')), checks().size() + 2) << report;
  EXPECT_NE(report.find("ok      shared memory     64 MiB for each of 8 ranks\n"), std::string::npos) << report;
  EXPECT_NE(report.find("2 nodes share 10.0.0.0/24 (eth0, which claims 10000 Mbit/s; `lockstep links` measures)\n"),
            std::string::npos)
      << report;
  EXPECT_TRUE(report.ends_with("23 checks of 8 ranks on 2 nodes: healthy\n")) << report;
}

TEST(DoctorReport, ShowsMeasuredAndClaimedSpeedsOfLinks) {
  World world = healthy(2, 1);
  set({0}, &Facts::link_mbit_per_s, 9412.4)(world);
  set({1}, &Facts::link_mbit_per_s, 9380.6)(world);
  const Topology topology = world.topology();
  const std::string report = report_text(view_of(world, topology), world.diagnose());
  EXPECT_NE(report.find("(eth0, which claims 10000 Mbit/s; at least 9381 were measured)\n"), std::string::npos)
      << report;
  const Json json = Json::parse(report_json(view_of(world, topology), world.diagnose(), false));
  EXPECT_EQ(json["facts"]["nodes"][0]["measured_mbit_per_s"], 9412);
}

TEST(DoctorLinks, BestMomentCounts) {
  RateMeter steady;
  for (int i = 0; i < 40; ++i) steady.add(0.005 * i, 625'000);
  EXPECT_NEAR(steady.mbit_per_s(), 1000, 1);
  RateMeter stalled;
  for (int i = 0; i < 40; ++i) stalled.add(0.005 * i + (i < 10 ? 0 : 0.3), 625'000);
  EXPECT_NEAR(stalled.mbit_per_s(), 1000, 1) << "the process got no core for a while";
  RateMeter brief;
  EXPECT_EQ(brief.mbit_per_s(), 0);
  brief.add(0.01, 1000);
  EXPECT_EQ(brief.mbit_per_s(), 0) << "one arrival has no rate";
  brief.add(0.03, 2500);
  EXPECT_NEAR(brief.mbit_per_s(), 1, 0.001);
}

std::vector<double> rates_between(const std::string& address) {
  std::vector<double> found;
  const Topology topology = healthy(2, 2).topology();
  const auto begin = std::chrono::steady_clock::now();
  test::on_threads(4, [&](Exchange& exchange) {
    auto rates = try_links(exchange, topology, {{0, 1}, {address, address}, 1});
    if (exchange.rank() == 3) found = std::move(rates);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3)) << "0.9 s, and what a busy machine adds";
  return found;
}

TEST(DoctorLinks, AreTriedByTheFirstRankOfEachMachine) {
  const auto rates = rates_between("127.0.0.1");
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_GT(rates[0], 10);
  EXPECT_EQ(rates[1], 0);
  EXPECT_GT(rates[2], 10);
  EXPECT_EQ(rates[3], 0);
}

TEST(DoctorLinks, ThatLeadNowhereAreNotMeasured) {
  EXPECT_EQ(rates_between("192.0.2.1"), std::vector<double>(4, 0)) << "nobody has this address";
  EXPECT_EQ(rates_between("no address"), std::vector<double>(4, 0));
}

TEST(DoctorReport, NamesProblemPlaceReasonAndRemedy) {
  World world = healthy(5, 1);
  set({0, 1, 2, 4}, &Facts::huge_pages, "never")(world);
  set({4}, &Facts::shared_memory, ResourceGrant{mebibyte, 0, EROFS})(world);
  const Topology topology = world.topology();
  const std::string report = report_text(view_of(world, topology), world.diagnose());
  EXPECT_NE(report.find("note    huge pages        ranks 0-2,4 on node0, node1, node2 and 1 more: "), std::string::npos)
      << report;
  EXPECT_NE(report.find("BROKEN  shared memory     rank 4 on node4: nothing"), std::string::npos) << report;
  EXPECT_NE(report.find("\n          why   "), std::string::npos);
  EXPECT_NE(report.find("\n          fix   mount -o remount,rw /dev/shm"), std::string::npos);
  EXPECT_TRUE(report.ends_with(": 1 broken, 1 note\n")) << report;
}

TEST(DoctorReport, JsonHoldsTheSame) {
  World world = healthy(2, 1);
  set({1}, &Facts::clock_ns, 900.0)(world);
  world.parts.nodes[1].host = "bad\xff\x1b";
  const Topology topology = world.topology();
  const Json report = Json::parse(report_json(view_of(world, topology), world.diagnose(), true));
  EXPECT_EQ(report["schema"], "lockstep-doctor");
  EXPECT_EQ(report["version"], 1);
  EXPECT_EQ(report["verdict"], "slow");
  EXPECT_EQ(report["exit"], 6);
  EXPECT_EQ(report["checks"].size(), checks().size());
  ASSERT_EQ(report["findings"].size(), 1U);
  const Json& finding = report["findings"][0];
  EXPECT_EQ(finding["check"], "clock");
  EXPECT_EQ(finding["ranks"], "1");
  EXPECT_EQ(finding["hosts"], Json::array({"bad\\xff\\x1b"}));
  for (const char* key : {"grade", "what", "why", "fix"}) EXPECT_FALSE(finding[key].get<std::string>().empty()) << key;
  EXPECT_EQ(report["facts"]["ranks"], 2);
  EXPECT_EQ(report["facts"]["nodes"][0]["nics"][1]["addresses"], Json::array({"10.0.0.1/24", "fd00::1/64"}));
}

TEST(DoctorReport, OnlyBrokenIsUnfit) {
  EXPECT_EQ(exit_for(Grade::ok, true), Exit::success);
  EXPECT_EQ(exit_for(Grade::note, true), Exit::success);
  EXPECT_EQ(exit_for(Grade::slow, false), Exit::success);
  EXPECT_EQ(exit_for(Grade::slow, true), Exit::unfit);
  EXPECT_EQ(exit_for(Grade::broken, false), Exit::unfit);
}

TEST(DoctorSettings, AreATableWithTheirSources) {
  const std::vector<std::string> lines{"LOCKSTEP_TIMEOUT=5", "LOCKSTEP_TIMOUT=6"};
  const Settings settings = Settings::from_lines(lines);
  constexpr std::size_t unfolded = 1000;
  const std::string table = settings_text(settings, unfolded);
  for (const SettingRow& row : setting_rows()) {
    EXPECT_NE(table.find(row.name), std::string::npos);
    EXPECT_NE(table.find(row.allowed), std::string::npos);
    EXPECT_NE(table.find(row.meaning), std::string::npos);
  }
  EXPECT_NE(table.find("did you mean LOCKSTEP_TIMEOUT?"), std::string::npos) << table;
  const Json json = Json::parse(settings_json(settings));
  EXPECT_EQ(json["settings"].size(), setting_rows().size());
  const Json& timeout = json["settings"][static_cast<std::size_t>(Setting::timeout)];
  EXPECT_EQ(timeout["value"], "5");
  EXPECT_EQ(timeout["from"], "environment");
  EXPECT_EQ(timeout["default"], "300s");
  EXPECT_EQ(json["warnings"].size(), 1U);
}

TEST(DoctorSettings, FitTheWidth) {
  const std::string path(60, 'x');
  const std::vector<std::string> lines{"LOCKSTEP_DUMP=/" + path, "LOCKSTEP_TIMOUT=6"};
  for (const std::size_t width : {80U, 120U}) {
    const std::string table = settings_text(Settings::from_lines(lines), width);
    for (const std::string& line : split(table, '\n')) EXPECT_LE(line.size(), width) << line;
    EXPECT_NE(table.find("    Value: /" + path + "\n"), std::string::npos) << table;
  }
}

TEST(DoctorManual, ListsEveryCheck) {
  const std::string whole = page(doctor_manual());
  for (const DoctorCheck& check : checks()) EXPECT_NE(whole.find(check.looks_at), std::string::npos) << check.name;
}

}  // namespace
}  // namespace lockstep::command
