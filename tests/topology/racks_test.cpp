// SPDX-License-Identifier: Apache-2.0
// Racks: how they are described, and what becomes of it.
#include "topology/racks.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/description.hpp"

namespace lockstep {
namespace {

Topology four_nodes() {
  MachineShape machine;
  for (int core = 0; core < 2; ++core) machine.pus.push_back({.os_index = core, .core = core});
  return describe({{machine, 4, 2}});
}

std::string refusal_of(std::string_view words) {
  try {
    static_cast<void>(parse_racks(words, "LOCKSTEP_RACKS"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_setting);
    return error.what();
  }
  return {};
}

TEST(Racks, AreReadFromAVariableAndFromAFile) {
  const Racks racks = parse_racks("a = node[1-2],login7; b=node3 node4 ; uplink = 2.5T", "LOCKSTEP_RACKS");
  EXPECT_EQ(racks.of("node2"), "a");
  EXPECT_EQ(racks.of("login7"), "a");
  EXPECT_EQ(racks.of("node4"), "b");
  EXPECT_EQ(racks.of("node4.cluster.example"), "b");
  EXPECT_EQ(racks.of("node5"), "");
  EXPECT_EQ(racks.uplink_mbit_per_s, 2'500'000);
  EXPECT_EQ(parse_racks("# ours\na = node[1-2],login7\n\nb = node[3-4] # far\nuplink = 2500G\n", "f"), racks);
  Settings settings;
  EXPECT_EQ(racks_of(settings), std::nullopt);
  settings.set(Setting::racks, "a = node[1-2],login7; b = node[3-4]; uplink = 2.5T");
  EXPECT_EQ(racks_of(settings), racks);
  const auto path = std::filesystem::temp_directory_path() / text("racks_test.", getpid());
  std::ofstream(path) << "a = node[1-2],login7\nb = node[3-4]\nuplink = 2.5T\n";
  settings.set(Setting::racks, path.string());
  EXPECT_EQ(racks_of(settings), racks);
  std::ofstream(path) << "a = node1\nb\n";
  try {
    static_cast<void>(racks_of(settings));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path.string() + ":2: \"b\" names no rack"), std::string::npos)
        << error.what();
  }
  std::filesystem::remove(path);
}

TEST(Racks, ThatAreWrongAreRefusedWithTheirPlace) {
  EXPECT_NE(refusal_of("a = node[1-").find("\"node[1-\" is not a list of hosts"), std::string::npos);
  EXPECT_NE(refusal_of("a = x; b = x").find("host x is in a and in b"), std::string::npos);
  EXPECT_NE(refusal_of("uplink = fast").find("\"fast\" as the rate of a rack's uplink"), std::string::npos);
  EXPECT_NE(refusal_of("a//b = x").find("\"a//b\" as the name of a rack"), std::string::npos);
  for (const char* const wrong :
       {"a", "=", "= x", "a =", "a b = x", "/a = x", "uplink =", "uplink = -1G", "a = ,", "\xff = x"})
    EXPECT_FALSE(refusal_of(wrong).empty()) << wrong;
}

TEST(Racks, ComeFromSlurm) {
  const auto by = [](const char* address, const char* pattern) {
    return rack_by_slurm(
        [=](const char* name) { return std::string_view(name) == "SLURM_TOPOLOGY_ADDR" ? address : pattern; });
  };
  EXPECT_EQ(by("s0.s4.node7", "switch.switch.node"), "s0/s4");
  EXPECT_EQ(by("node7", "node"), "");
  EXPECT_EQ(by("s0.s4.node7", nullptr), "");
  EXPECT_EQ(by(nullptr, nullptr), "");
}

TEST(Racks, AreAPartOfTheTopology) {
  const Topology plain = four_nodes();
  EXPECT_FALSE(plain.has_racks());
  const Topology some = in_racks(plain, parse_racks("a = node[0-1]; b = node[2-3]; uplink = 10G", ""));
  EXPECT_EQ(some.node(3).rack, "b");
  EXPECT_EQ(some.rack_mbit_per_s(), 10'000);
  EXPECT_EQ(Topology::from_bytes(some.to_bytes()), some);
  EXPECT_NE(some.fingerprint(), plain.fingerprint());
  EXPECT_NE(some.kind(), plain.kind());
  EXPECT_EQ(some.kind(), in_racks(plain, parse_racks("x = node[0-1]; y = node[2-3]", "")).kind());
  EXPECT_NE(some.kind(), in_racks(plain, parse_racks("x = node0,node2; y = node1,node3", "")).kind());
}

TEST(Racks, ThatDoNotNameAllNodesAreNotUsedAndThatIsRemarked) {
  const Topology some = in_racks(four_nodes(), parse_racks("a = node[0-1]; b = node2", ""));
  EXPECT_FALSE(some.has_racks());
  ASSERT_FALSE(some.remarks().empty());
  EXPECT_EQ(some.remarks().back(), "the rack of node3 is not known, so racks are not used");
  EXPECT_TRUE(in_racks(four_nodes(), Racks{}).remarks().empty());
}

}  // namespace
}  // namespace lockstep
