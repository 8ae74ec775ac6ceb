// SPDX-License-Identifier: Apache-2.0
// `lockstep topo`: its text against golden files, its JSON read back, its options. After a wanted change of
// the text, write the golden files again and read the difference, with the words of the table below:
//   build/tools/lockstep topo --synthetic "package:1 core:4 pu:1" > tests/tools/golden/topo_4.txt
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/run_command.hpp"
#include "tests/topology/shapes.hpp"
#include "tools/lockstep/topo_json.hpp"
#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_members.hpp"
#include "tools/lockstep/topo_text.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/group.hpp"
#include "topology/machine/read_machine.hpp"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using test::holds;
using test::Words;

std::string read(const fs::path& path) {
  const std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

Words lines_of(const std::string& all) {
  Words lines = split(all, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::string printed(const Words& words) { return test::printed(run_topo, topo_manual(), words); }

struct Golden {
  std::string file;
  Words words;
};

class TopoGolden : public testing::TestWithParam<Golden> {};

TEST_P(TopoGolden, Text) {
  const std::string text = printed(GetParam().words);
  EXPECT_EQ(text, read(fs::path(SOURCE_ROOT) / "tests/tools/golden" / GetParam().file));
  EXPECT_LE(lines_of(text).size(), 50U);
  for (const std::string& line : lines_of(text)) EXPECT_LE(screen_width(line), 100U) << line;
}

INSTANTIATE_TEST_SUITE_P(
    All, TopoGolden,
    testing::Values(
        Golden{"topo_4.txt", {"--synthetic", "package:1 core:4 pu:1"}},
        Golden{"topo_gpus.txt", {"--synthetic", "4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)"}},
        Golden{"topo_1024.txt", {"--synthetic", "128 x node(package:2 core:4 pu:1)", "--ranks-per-node", "8"}},
        Golden{"topo_unequal.txt",
               {"--synthetic", "2 x node(core:8 pu:1 ranks:3) + node(core:4 pu:1 ranks:1)", "--links", "--order"}}),
    [](const auto& each) { return fs::path(each.param.file).stem().string(); });

// So many kinds of node, with many members on each.
std::string kinds_description(int kinds, int ranks) {
  std::string description = "node(core:2 pu:1)";
  for (int cores = 3; cores < 2 + kinds; ++cores) {
    description +=
        text(" + 3 x node(package:2 numa:4 core:", cores, " pu:2 gpu:4 nic:2x25G ranks:", ranks * cores, ")");
  }
  return description;
}

TEST(TopoText, FitsAScreenWhenNodesDiffer) {
  for (const int kinds : {1, 2, 7, 12}) {
    for (const int ranks : {1, 5}) {
      const std::string tree = topo_tree(topology_from_description(kinds_description(kinds, ranks), 0));
      EXPECT_LE(lines_of(tree).size(), 50U) << kinds << " kinds, " << ranks << " ranks\n" << tree;
      EXPECT_TRUE(holds(tree, "node0: ranks 0-1\n")) << tree;
    }
  }
  const std::string tree = topo_tree(topology_from_description(kinds_description(41, 1), 0));
  EXPECT_LE(lines_of(tree).size(), 50U);
  EXPECT_TRUE(holds(tree, "more kinds of node: ")) << tree;
}

TEST(TopoText, TellsNearGpusFromThoseSeen) {
  TopologyParts parts;
  parts.machines = {test::shape({.packages = 2, .cores = 2})};
  parts.machines[0].gpus = {{"H", "0000:01:00.0", 0, 0}, {"H", "0000:02:00.0", 1, 1}};
  parts.machines[0].gpu_links = {GpuLink::same, GpuLink::nvlink, GpuLink::nvlink, GpuLink::same};
  parts.places = {Place{0, IndexSet::range(2, 3), 0, {0, 1}}};
  parts.nodes = {Node{"here", 0, {}, {}}};
  parts.members = {{0, 0, 0}};
  const std::string tree = topo_tree(Topology(parts));
  EXPECT_TRUE(holds(tree, "GPUs      2 × H; package 0: 0, package 1: 1; nvlink between all\n")) << tree;
  EXPECT_TRUE(holds(tree, "     0     1        1     2-3    2-3   1 of 2\n")) << tree;
  EXPECT_EQ(nlohmann::json::parse(topo_json(Topology(parts))).at("member_list").at(0).at("closest_gpus"),
            std::vector{1});
}

TEST(TopoText, ShowsEveryRankOfASmallNode) {
  const std::string tree = topo_tree(topology_from_description("package:2 core:12 pu:2", 24));
  for (int rank = 0; rank < 24; ++rank) EXPECT_TRUE(holds(tree, text("\n     ", rank, " "))) << rank << "\n" << tree;
}

TEST(TopoText, FoldsMembersCompletely) {
  const Topology topology = topology_from_description("package:2 numa:4 core:16 pu:1", 128);
  const Words table = member_table(topology, 0, 8);
  ASSERT_EQ(table.size(), 9U);
  EXPECT_TRUE(table[1].starts_with("0-15 ")) << table[1];
  EXPECT_TRUE(holds(table[1], "0-15, 1 each")) << table[1];
  EXPECT_TRUE(table[8].starts_with("112-127 ")) << table[8];
  EXPECT_EQ(member_table(topology, 0, 2).size(), 3U);
  EXPECT_TRUE(member_table(topology, 0, 1).at(1).starts_with("0-127 "));
}

TEST(TopoText, NamesUnboundMembersAndQuotas) {
  TopologyParts parts;
  parts.machines = {test::shape({.packages = 2, .numas = 1, .cores = 2})};
  parts.places = {Place{0, IndexSet::range(0, 3), 1.5, {}}};
  parts.nodes = {Node{"here", 0, {}, {}}};
  parts.members = {{0, 0, 11}, {0, 0, 12}};
  parts.remarks = {"the clocks differ"};
  const std::string tree = topo_tree(Topology(parts));
  EXPECT_TRUE(holds(tree, "1.333 members for one core, not bound")) << tree;
  EXPECT_TRUE(holds(tree, "1.5 cores\n")) << tree;
  EXPECT_TRUE(holds(tree, "Remarks\n  the clocks differ\n")) << tree;
}

TEST(TopoText, NamesInterfacesAndAddresses) {
  TopologyParts parts;
  parts.machines = {test::shape({.cores = 1})};
  parts.machines[0].nics = {{"eth0", 10000, none, none}, {"ib0", 400000, none, none}, {"ib1", 400000, none, none}};
  parts.places = {Place{0, IndexSet{0}, 0, {}}};
  for (int i = 1; i <= 9; ++i) {
    parts.nodes.push_back(Node{text("n", i), 0, {}, {{0, text("10.0.0.", i, "/24")}}});
    parts.members.push_back({i - 1, 0, 0});
  }
  const std::string tree = topo_tree(Topology(parts));
  EXPECT_TRUE(holds(tree, "network: ib[0-1] 400 Gbit/s, eth0 10 Gbit/s\n")) << tree;
  EXPECT_TRUE(holds(tree, "n[1-9] (9 alike): ranks 0-8\n")) << tree;
  EXPECT_TRUE(holds(tree, "eth0 10 Gbit/s at 10.0.0.[1-9]/24\n")) << tree;
}

TEST(TopoText, CountsLinksAsThePairsAre) {
  const auto machine = test::shape({.packages = 2, .numas = 2, .cores = 4, .threads = 2, .l3_cores = 2});
  const test::MadeNode crowded{0, {{0, 0}, {1, 1}, {2, 5}, {4, 7}, {8, 9}, {0, 31}, {0, 31}, {16, 19}, {18, 19}}};
  const Topology topology = test::made_of({machine}, {crowded, crowded, {0, {{0, 1}, {30, 31}}}});
  std::map<Link, int> pairs;
  for (int a = 0; a < topology.size(); ++a) {
    for (int b = a + 1; b < topology.size(); ++b) ++pairs[topology.link(a, b)];
  }
  ASSERT_EQ(pairs.size(), 6U) << "all kinds of link but self";
  const std::string links = topo_links(topology);
  EXPECT_TRUE(holds(links, "Links of 190 pairs of members\n")) << links;
  for (const auto& [link, count] : pairs) {
    std::string name(to_string(link));
    name.resize(22, ' ');
    EXPECT_TRUE(holds(links, text("  ", name, count < 10 ? "   " : count < 100 ? "  " : " ", count, "\n"))) << links;
  }
  EXPECT_FALSE(holds(links, "rank  ")) << "no matrix for twenty members";
  EXPECT_TRUE(holds(topo_links(topology_from_description("16 x node(core:1 pu:1)", 0)), "  15    W  W"))
      << "but for sixteen";
}

TEST(TopoText, OrdersFollowTheMachineNotTheRanks) {
  TopologyParts parts;  // ranks dealt round to three nodes of two cores
  parts.machines = {test::shape({.cores = 2})};
  for (int node = 0; node < 3; ++node) parts.nodes.push_back({text("n", node), 0, {}, {}});
  for (int rank = 0; rank < 6; ++rank)
    parts.members.push_back({rank % 3, parts.intern(Place{0, IndexSet{rank / 3}, 0, {}}), 0});
  const std::string order = topo_order(Topology(parts));
  EXPECT_TRUE(holds(order, "ring      0, 3, 1, 4, 2, 5, and back to 0\n")) << order;
  EXPECT_TRUE(holds(order, "leaders   0-2  (3)\n")) << order;
  EXPECT_TRUE(holds(order, "rail 1    3-5  (3)\n")) << order;
}

TEST(TopoKinds, AreNodesWithTheSameMachineAndPlaces) {
  const auto machine = test::shape({.cores = 4});
  const test::MadeNode halves{0, {{0, 1}, {2, 3}}};
  const test::MadeNode reversed{0, {{2, 3}, {0, 1}}};  // the same places in another order of ranks
  const test::MadeNode one{0, {{0, 3}}};
  const auto kinds = kinds_of(test::made_of({machine}, {halves, one, halves, reversed}));
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].nodes, (std::vector{0, 2, 3}));
  EXPECT_EQ(kinds[0].ranks, (std::vector{0, 1, 3, 4, 5, 6}));
  EXPECT_EQ(kinds[1].nodes, std::vector{1});
}

TEST(TopoKinds, MachinesInWords) {
  EXPECT_EQ(inside_of(test::shape({.packages = 2, .numas = 2, .cores = 8, .threads = 2})),
            "2 packages, each: 2 NUMA nodes, each: 8 cores × 2 threads");
  EXPECT_EQ(inside_of(test::shape({.packages = 2, .cores = 1})), "2 packages (1 NUMA node), each: 1 core");
  MachineShape caches = test::shape({.cores = 8, .l3_cores = 4});
  caches.l3_bytes = 32U << 20U;
  EXPECT_EQ(inside_of(caches), "1 package (1 NUMA node): 2 L3 caches of 32 MiB, each: 4 cores");
  MachineShape uneven = test::shape({.packages = 2, .cores = 3});
  uneven.pus.pop_back();
  EXPECT_EQ(inside_of(uneven), "[1 package (1 NUMA node): 3 cores] + [1 package (1 NUMA node): 2 cores]");
}

TEST(TopoFold, Numbers) {
  EXPECT_EQ(fold_numbers(std::vector<int>{}), "");
  EXPECT_EQ(fold_numbers(std::vector{7}), "7");
  EXPECT_EQ(fold_numbers(std::vector{0, 1}), "0-1");
  EXPECT_EQ(fold_numbers(std::vector{0, 2}), "0, 2");
  EXPECT_EQ(fold_numbers(std::vector{0, 8, 16, 24}), "0-24 by 8");
  EXPECT_EQ(fold_numbers(std::vector{3, 2, 1, 0}), "3-0 by -1");
  EXPECT_EQ(fold_numbers(std::vector{0, 1, 2, 9, 20, 21}, 8), "0-2, 9, 20-21");
  EXPECT_EQ(fold_numbers(std::vector{0, 10, 11, 30, 60, 100}, 2), "0, 10-11, and 3 more");
}

TEST(TopoFold, Names) {
  EXPECT_EQ(fold_names(Words{"node0", "node1", "node2"}), "node[0-2]");
  EXPECT_EQ(fold_names(Words{"n008", "n009", "n010", "n100"}), "n[008-010,100]");
  EXPECT_EQ(fold_names(Words{"a1.east", "a2.east", "login"}), "a[1-2].east, login");
  EXPECT_EQ(fold_names(Words{"10.0.0.1/24", "10.0.0.2/24"}), "10.0.0.[1-2]/24");
  EXPECT_EQ(fold_names(Words{"same", "same"}), "same");
  EXPECT_EQ(fold_names(Words{"a", "b", "c", "d"}, 2), "a, b, and 2 more");
  EXPECT_EQ(fold_names(Words{"id12345678901234567890"}), "id12345678901234567890");
}

TEST(TopoJson, ReadsBackAsTheTopology) {
  const Topology topology =
      topology_from_description("2 x node(package:2 core:2 pu:2 gpu:2@nvlink nic:10G nic:100G) + node(core:1 pu:1)", 4);
  const auto json = nlohmann::json::parse(topo_json(topology));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("members"), 12);
  EXPECT_EQ(json.at("nodes"), 3);
  EXPECT_EQ(std::stoull(json.at("fingerprint").get<std::string>(), nullptr, 16), topology.fingerprint());
  ASSERT_EQ(json.at("machine_shapes").size(), 2U) << "equal machines are stored once";
  const auto& machine = json["machine_shapes"][0];
  EXPECT_EQ(machine.at("pus").size(), 8U);
  EXPECT_EQ(machine["pus"][5].at("core"), 2);
  EXPECT_TRUE(machine["pus"][5].at("l3").is_null());
  EXPECT_EQ(machine.at("gpu_links"), nlohmann::json::parse(R"([["same", "nvlink"], ["nvlink", "same"]])"));
  EXPECT_EQ(machine.at("nics").at(1).at("mbit_per_s"), 100000);
  ASSERT_EQ(json.at("places").size(), topology.places().size());
  EXPECT_EQ(json["places"][1].at("pus"), (std::vector{2, 3}));
  EXPECT_EQ(json.at("node_list").at(2).at("members_per_core"), 4);
  EXPECT_EQ(json["node_list"][1].at("ranks"), (std::vector{4, 5, 6, 7}));
  for (int rank = 0; rank < topology.size(); ++rank) {
    const auto& member = json.at("member_list").at(static_cast<std::size_t>(rank));
    EXPECT_EQ(member.at("rank"), rank);
    EXPECT_EQ(member.at("node"), topology.member(rank).node);
    EXPECT_EQ(member.at("place"), topology.member(rank).place);
    EXPECT_EQ(member.at("closest_gpus"), topology.closest_gpus(rank));
    EXPECT_EQ(member.at("closest_nics"), topology.closest_nics(rank));
  }
  EXPECT_EQ(json.at("order").at("leaders"), (std::vector{0, 4, 8}));
  EXPECT_EQ(json["order"].at("rails").at(3), (std::vector{3, 7, 11}));
  EXPECT_EQ(json["order"].at("ring").size(), 12U);
  EXPECT_TRUE(json.at("remarks").empty());
}

TEST(TopoJson, HoldsNamesThatAreNoText) {
  TopologyParts parts;
  parts.machines = {test::shape({.cores = 1})};
  parts.places = {Place{0, IndexSet{0}, 0, {}}};
  parts.nodes = {Node{"\"<a>&\xff\x01", 0, {}, {}}};
  parts.members = {{0, 0, 4711}};
  parts.remarks = {"first", "second"};
  const auto json = nlohmann::json::parse(topo_json(Topology(parts)));
  EXPECT_EQ(json.at("node_list").at(0).at("host"), "\"<a>&\\xff\\x01");
  EXPECT_EQ(json.at("member_list").at(0).at("pid"), 4711);
  EXPECT_EQ(json.at("remarks"), (Words{"first", "second"}));
}

TEST(TopoOptions, MisuseIsRefusedWithAWayOut) {
  const std::vector<test::Misuse> all = {
      {{"--synthetic", "core:1 pu:1", "--xml", "x.xml"}, "two sources"},
      {{"--synthetic", "core:1 pu:1", "--synthetic", "core:2 pu:1"}, "join the descriptions"},
      {{"--synthetic", "core:1 pu:1", "--nodes", "4"}, "4 x node("},
      {{"--nodes", "4"}, "--nodes belongs to --xml"},
      {{"--ranks-per-node", "4"}, "--map-by ppr:N:node"},
      {{"--synthetic", "core:1 pu:1", "--ranks-per-node", "0"}, "whole number from 1"},
      {{"--xml", "x.xml", "--nodes", "many"}, "whole number from 1"},
      {{"--synthetic", "core:1 pu:1", "--svg", ""}, "empty file name"},
      {{"--synthetic", "core:1 pu:1", "--svg", "a", "--svg", "b"}, "twice"},
      {{"--synthetic", "core:1 pu:1", "--svg", "-", "--json"}, "standard output"},
      {{"--synthetic", "core:1 pu:1", "--svg", "-", "--links"}, "parts of the text"},
      {{"--synthetic", "core:1 pu:1", "--json", "--order"}, "parts of the text"},
      {{"--sythetic", "core:1 pu:1"}, "did you mean --synthetic"},
      {{"core:1"}, "not expected"},
  };
  test::expect_refused(run_topo, topo_manual(), all);
}

TEST(TopoOptions, TheManualsExamplesWork) {
  const std::string manual = page(topo_manual());
  int examples = 0;
  for (const std::string& line : lines_of(manual)) {
    EXPECT_LE(screen_width(line), 110U) << line;
    if (!line.starts_with("  \"") || !line.ends_with('"')) continue;
    EXPECT_GT(topology_from_description(std::string_view(line).substr(3, line.size() - 4), 0).size(), 0);
    ++examples;
  }
  EXPECT_EQ(examples, 3);
  for (const Option& option : topo_manual().options)
    EXPECT_TRUE(holds(manual, text("--", option.name, " "))) << option.name;
}

TEST(TopoOptions, XmlPictureAndJsonInOneRun) {
  const fs::path folder = fs::path(testing::TempDir()) / text("topo_test.", ::getpid());
  fs::create_directory(folder);
  const std::string picture = folder / "a.svg";
  const Words words{"--synthetic", "2 x node(core:2 pu:1)", "--svg", picture, "--json"};
  const auto json = nlohmann::json::parse(printed(words));
  EXPECT_EQ(json.at("members"), 4);
  EXPECT_TRUE(read(picture).starts_with("<svg ")) << read(picture);
  EXPECT_EQ(printed({"--synthetic", "2 x node(core:2 pu:1)", "--svg", "-"}), read(picture));
  EXPECT_TRUE(
      holds(printed({"--synthetic", "core:2 pu:1", "--svg", picture}), text("The picture is in ", picture, "\n")));
  fs::remove_all(folder);
}

TEST(TopoFile, IsWrittenAtomically) {
  const fs::path folder = fs::path(testing::TempDir()) / text("topo_file.", ::getpid());
  fs::create_directory(folder);
  write_file(folder / "real", "first");
  fs::create_symlink("real", folder / "link");
  write_file(folder / "link", "second");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read(folder / "real"), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << "nothing else is left behind";
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  write_file(pipe, "through");
  std::array<char, 16> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 7);
  ::close(reader);
  ASSERT_TRUE(fs::is_fifo(pipe)) << "or /dev/full, below, would be replaced by a file";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {folder / "missing" / "file", "No such file"}, {folder, "Is a directory"}, {"/dev/full", "No space left"}};
  for (const auto& [path, reason] : bad) {
    try {
      write_file(path, "words");
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::file);
      EXPECT_TRUE(holds(error.what(), path) && holds(error.what(), reason)) << error.what();
    }
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::command
