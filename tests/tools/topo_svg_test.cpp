// SPDX-License-Identifier: Apache-2.0
// The picture of `lockstep topo`: XML that a browser takes, nothing from elsewhere, every rank where it
// can be read. What it looks like is for people to judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/xml_fault.hpp"
#include "tests/topology/shapes.hpp"
#include "tools/lockstep/topo_svg.hpp"
#include "topology/machine/read_machine.hpp"

namespace lockstep::command {
namespace {

using test::count;
using test::unpainted;
using test::xml_fault;

TEST(TopoXmlReader, SeesFaults) {
  EXPECT_EQ(xml_fault("<a b=\"c\"><d/>&lt;</a>\n"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a/><b/>", "<a b=c/>", "<a b=\"c/>", "<a>&x;</a>", "<a>&</a>",
                          "<a b=\"<\"/>", "<a b=\"1\" b=\"2\"/>", "<a>\x01</a>", "words"}) {
    EXPECT_NE(xml_fault(bad), "") << bad;
  }
}

struct Shown {
  std::string description;
  int ranks_per_node = 0;
  int all_labelled = 0;  // as many members as have a label of their own
};

class TopoPicture : public testing::TestWithParam<Shown> {};

TEST_P(TopoPicture, IsCompleteAndReadable) {
  const Topology topology = topology_from_description(GetParam().description, GetParam().ranks_per_node);
  const Picture picture = topo_picture(topology);
  const std::string svg = topo_svg(topology);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(unpainted(svg), "");
  EXPECT_EQ(count(svg, "http"), 1U) << "only the name of SVG itself";
  for (const char* foreign : {"<script", "href", "url(", "<image", "<style", "@import"}) {
    EXPECT_EQ(count(svg, foreign), 0U) << foreign;
  }
  EXPECT_EQ(count(svg, "nan"), 0U);
  EXPECT_EQ(count(svg, "inf"), 0U);
  EXPECT_LE(picture.width, 1300);
  std::set<int> ranks;
  const auto& labels = picture.scene.labels();
  for (std::size_t a = 0; a < labels.size(); ++a) {
    EXPECT_TRUE(ranks.insert(labels[a].rank).second) << "rank " << labels[a].rank << " twice";
    const SceneBox& box = labels[a].box;
    EXPECT_TRUE(box.x >= 0 && box.y >= 0 && box.right() <= picture.width && box.bottom() <= picture.height)
        << labels[a].rank;
    EXPECT_GE(count(svg, text(">", labels[a].rank, "</text>")), 1U);
    const double letters = text_width(text(labels[a].rank), 7, true);
    EXPECT_LE(letters, box.width) << "room for letters of seven pixels: rank " << labels[a].rank;
    for (std::size_t b = a + 1; b < labels.size(); ++b) {
      EXPECT_FALSE(box.overlaps(labels[b].box)) << "ranks " << labels[a].rank << " and " << labels[b].rank;
    }
  }
  EXPECT_EQ(static_cast<int>(ranks.size()), GetParam().all_labelled);
}

INSTANTIATE_TEST_SUITE_P(
    All, TopoPicture,
    testing::Values(Shown{"package:1 core:4 pu:1", 0, 4},
                    Shown{"4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)", 16, 64},
                    Shown{"package:2 numa:2 core:16 pu:2 gpu:8@nvlink", 64, 64}, Shown{"4 x node(core:4 pu:1)", 16, 64},
                    Shown{"2 x node(core:8 pu:1 ranks:3) + node(core:4 pu:1 ranks:1)", 0, 7},
                    Shown{"128 x node(package:2 core:4 pu:1)", 8, 8}, Shown{"core:1 pu:1", 40, 40},
                    Shown{"40 x node(core:2 pu:1 ranks:2) + 9 x node(core:3 pu:1 ranks:30)", 0, 32},
                    Shown{"package:4 numa:2 core:100 pu:2", 0, 200},
                    Shown{"4 x node(package:2 core:32 pu:1)", 64, 256}));

TEST(TopoSvg, OverviewNamesAllRanks) {
  const std::string svg = topo_svg(topology_from_description("128 x node(package:2 core:4 pu:1)", 8));
  EXPECT_EQ(count(svg, ", leader</title>"), 128U);
  for (const int node : {0, 1, 64, 127}) {
    EXPECT_EQ(count(svg, text(">", 8 * node, "-", 8 * node + 7, "</text>")), 1U) << node;
    EXPECT_EQ(count(svg, text("<title>rank ", 8 * node, ", leader</title>")), 1U) << node;
  }
}

Topology two_hosts(const std::string& host) {
  TopologyParts parts;
  parts.machines = {test::shape({.cores = 2})};
  parts.machines[0].nics = {{"<nic>", 1000, none, 0}};
  parts.machines[0].model = "A & B \"C\"";
  parts.places = {Place{0, IndexSet::range(0, 1), 0, {}}};
  parts.nodes = {Node{host, 0, {}, {}}, Node{"other", 0, {}, {}}};
  parts.members = {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}};
  return Topology(std::move(parts));
}

TEST(TopoSvg, EscapesNames) {
  const std::string svg = topo_svg(two_hosts("<h a=\"1\">&'\xfe\x02"));
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "&lt;h a=&quot;1&quot;&gt;&amp;&apos;\\xfe\\x02</text>"), 1U) << svg;
  EXPECT_EQ(count(svg, ">&lt;nic&gt;</text>"), 2U);
  EXPECT_EQ(count(svg, "A &amp; B &quot;C&quot;"), 2U);
}

TEST(TopoSvg, SpreadsMembersThatAreNotBoundOverTheirCores) {
  const Picture picture = topo_picture(two_hosts("here"));
  const auto& labels = picture.scene.labels();
  ASSERT_EQ(labels.size(), 3U);
  EXPECT_EQ(labels[0].box.y, labels[1].box.y) << "in one row, each on a core";
  EXPECT_GT(labels[1].box.x, labels[0].box.right());
}

// Solid labels have their cores alone; outlined ones share them.
TEST(TopoSvg, MarksMembersThatShareCores) {
  const std::string svg = topo_svg(two_hosts("here"));
  EXPECT_EQ(count(svg, ">member that shares its cores with others</text>"), 1U);
  EXPECT_EQ(count(svg, ">member with cores of its own</text>"), 1U);
  const std::string alone = topo_svg(topology_from_description("core:4 pu:1", 4));
  EXPECT_EQ(count(alone, ">member that shares its cores with others</text>"), 0U);
  EXPECT_EQ(count(alone, ">core that no member uses</text>"), 0U);
}

}  // namespace
}  // namespace lockstep::command
