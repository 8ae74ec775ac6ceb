// SPDX-License-Identifier: Apache-2.0
// The picture of `lockstep topo`: XML that a browser takes, nothing from elsewhere, every rank where it
// can be read. What it looks like is for people to judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/topology/shapes.hpp"
#include "tools/lockstep/topo_svg.hpp"
#include "topology/machine/read_machine.hpp"

namespace lockstep::command {
namespace {

std::size_t count(std::string_view all, std::string_view part) {
  std::size_t times = 0;
  for (std::size_t at = all.find(part); at != std::string_view::npos; at = all.find(part, at + 1)) ++times;
  return times;
}

// What is wrong with the content of an element or attribute; empty when it is well.
std::string text_fault(std::string_view content) {
  for (std::size_t at = content.find_first_of("<&"); at != std::string_view::npos;
       at = content.find_first_of("<&", at + 1)) {
    if (content[at] == '<') return "a bare <";
    const std::string_view name = content.substr(at, content.find(';', at) - at + 1);
    const std::set<std::string_view> known{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    if (!known.contains(name)) return text("an unknown entity ", name.substr(0, 10));
  }
  const bool control =
      std::ranges::any_of(content, [](char letter) { return letter >= 0 && letter < 0x20 && letter != '\n'; });
  return control ? "a control character" : "";
}

// Attributes of the form name="value", each name once.
std::string attribute_fault(std::string_view words) {
  std::set<std::string_view> names;
  while (!trim(words).empty()) {
    words = words.substr(words.find_first_not_of(" \n"));
    const std::size_t equal = words.find("=\"");
    if (equal == std::string_view::npos) return text("no value in ", words);
    const std::size_t end = words.find('"', equal + 2);
    if (end == std::string_view::npos) return text("an open quote in ", words);
    if (!names.insert(words.substr(0, equal)).second) return text("twice ", words.substr(0, equal));
    if (std::string fault = text_fault(words.substr(equal + 2, end - equal - 2)); !fault.empty()) return fault;
    words.remove_prefix(end + 1);
    if (!words.empty() && words[0] != ' ') return text("no blank before ", words);
  }
  return {};
}

// A small reader of XML without comments and the like, which the picture does not have.
std::string xml_fault(std::string_view xml) {
  std::vector<std::string_view> open;
  bool ended = false;
  while (!trim(xml).empty()) {
    const std::size_t begin = xml.find('<');
    if (std::string fault = text_fault(xml.substr(0, begin)); !fault.empty()) return fault;
    if (begin == std::string_view::npos || ended) return "words outside of the root";
    const std::size_t end = xml.find('>', begin);
    if (end == std::string_view::npos) return "an open tag";
    std::string_view tag = xml.substr(begin + 1, end - begin - 1);
    xml.remove_prefix(end + 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return text("</", tag.substr(1), "> closes nothing");
      open.pop_back();
    } else {
      const bool closed = tag.ends_with('/');
      if (closed) tag.remove_suffix(1);
      const std::size_t space = std::min(tag.find(' '), tag.size());
      if (std::string fault = attribute_fault(tag.substr(space)); !fault.empty()) return fault;
      if (!closed) open.push_back(tag.substr(0, space));
    }
    ended = open.empty();
  }
  return open.empty() ? "" : text("<", open.back(), "> stays open");
}

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

TEST_P(TopoPicture, IsWholeAndReadable) {
  const Topology topology = topology_from_description(GetParam().description, GetParam().ranks_per_node);
  const Picture picture = topo_picture(topology);
  const std::string svg = topo_svg(topology);
  EXPECT_EQ(xml_fault(svg), "");
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
    const Box& box = labels[a].box;
    EXPECT_TRUE(box.x >= 0 && box.y >= 0 && box.right() <= picture.width && box.bottom() <= picture.height)
        << labels[a].rank;
    EXPECT_GE(count(svg, text(">", labels[a].rank, "</text>")), 1U);
    const double letters = words_width(text(labels[a].rank), 7, true);
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
                    Shown{"8 x node(package:2 core:4 pu:2 nic:2x100G)", 8, 64},
                    Shown{"package:2 numa:2 core:16 pu:2 gpu:8@nvlink", 64, 64}, Shown{"4 x node(core:4 pu:1)", 16, 64},
                    Shown{"2 x node(core:8 pu:1 ranks:3) + node(core:4 pu:1 ranks:1)", 0, 7},
                    Shown{"128 x node(package:2 core:4 pu:1)", 8, 8}, Shown{"core:1 pu:1", 40, 40},
                    Shown{"40 x node(core:2 pu:1 ranks:2) + 9 x node(core:3 pu:1 ranks:30)", 0, 32},
                    Shown{"package:4 numa:2 core:100 pu:2", 0, 200}, Shown{"4 x node(package:2 core:32 pu:1)", 64, 256},
                    Shown{"3000 x node(core:4 pu:1)", 4, 4}));

TEST(TopoSvg, OverviewNamesAllRanks) {
  const std::string svg = topo_svg(topology_from_description("128 x node(package:2 core:4 pu:1)", 8));
  for (int node = 0; node < 128; ++node) {
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
  EXPECT_EQ(count(svg, "&lt;h a=&quot;1&quot;&gt;&amp;&apos;\?\?</text>"), 1U) << svg;
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
TEST(TopoSvg, ShowsWhoSharesCores) {
  const std::string svg = topo_svg(two_hosts("here"));
  EXPECT_EQ(count(svg, ">member that shares its cores with others</text>"), 1U);
  EXPECT_EQ(count(svg, ">member with cores of its own</text>"), 1U);
  const std::string alone = topo_svg(topology_from_description("core:4 pu:1", 4));
  EXPECT_EQ(count(alone, ">member that shares its cores with others</text>"), 0U);
  EXPECT_EQ(count(alone, ">core that no member uses</text>"), 0U);
}

}  // namespace
}  // namespace lockstep::command
