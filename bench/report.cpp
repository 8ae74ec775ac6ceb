// SPDX-License-Identifier: Apache-2.0
// Makes the page in the order of the reader's questions: the quality, the details, the slow link, the configuration.
#include "bench/report.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "bench/html_text.hpp"
#include "bench/report_chart.hpp"
#include "bench/report_findings.hpp"
#include "bench/report_groups.hpp"
#include "bench/report_links.hpp"
#include "bench/report_style.hpp"
#include "bench/report_table.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using html::counted;
using html::element;
using html::escaped;

constexpr std::size_t most_open_rows = 40;  // of all tables of rows; more are folded
constexpr std::array<std::string_view, 4> their_looks = {"theirs0", "theirs1", "theirs2", "theirs3"};

struct ReportPage {
  const ReportParts& parts;
  const BenchRun& run;
  std::vector<RowGroup> groups;
  std::vector<ReportFinding> findings;
};

ReportPage page_of(const ReportParts& parts) {
  return {.parts = parts, .run = *parts.run, .groups = groups_of(*parts.run), .findings = findings_of(*parts.run)};
}

std::string_view look_of_tone(Tone tone) {
  return tone == Tone::bad ? "bad" : tone == Tone::look ? "look" : tone == Tone::good ? "good" : "note";
}

// Sets commands between backquotes as code.
std::string sentence(std::string_view words) {
  std::string all;
  bool code = false;
  for (const std::string& part : split(words, '`')) {
    all += code ? element("code", "", escaped(part)) : escaped(part);
    code = !code;
  }
  return all;
}

std::string finding_text(const ReportFinding& finding) {
  return text("<span class=\"tone\">", word_of(finding.tone), ":</span> ", sentence(finding.what));
}

std::string verdict_section(const ReportPage& page) {
  const ReportFinding& first = page.findings.front();
  std::string all = text("<div class=\"verdict ", look_of_tone(first.tone), "\"><p>", finding_text(first), "</p>");
  if (!first.next.empty()) all += text("<p>", sentence(first.next), "</p>");
  all += "</div>\n";
  if (page.findings.size() == 1) return all;
  all += "<ul class=\"also\">\n";
  for (std::size_t i = 1; i < page.findings.size(); ++i) {
    const ReportFinding& each = page.findings[i];
    all += text("<li class=\"", look_of_tone(each.tone), "\">", finding_text(each), each.next.empty() ? "" : " ",
                sentence(each.next), "</li>\n");
  }
  return all + "</ul>\n";
}

std::string tile(std::string_view value, std::string_view words) {
  return text("<li><b>", escaped(value), "</b><span>", escaped(words), "</span></li>\n");
}

std::string tiles_of(const ReportPage& page) {
  std::string all;
  const BenchRun& run = page.run;
  const Row* widest = nullptr;
  const Row* nearest_limit = nullptr;
  const auto share = [](const Row& row) {
    return row.limit && row.time.median > 0 ? row.limit->us / row.time.median : 0;
  };
  for (const Row& row : run.rows) {
    if (row.busbw > 0 && (widest == nullptr || row.busbw > widest->busbw)) widest = &row;
    if (share(row) > 0 && share(row) <= 1 && (nearest_limit == nullptr || share(row) > share(*nearest_limit)))
      nearest_limit = &row;
  }
  const auto where = [](const Row& row) { return text(row.collective, ' ', html::size_word(row.bytes)); };
  all += tile(text(run.ranks, run.ranks == 1 ? " rank" : " ranks"),
              text("on ", counted(static_cast<std::size_t>(std::max(run.nodes, 0)), "node")));
  if (!run.rows.empty()) all += tile(counted(run.rows.size(), "row"), text("of ", counted(page.groups.size(), "case")));
  if (widest != nullptr)
    all += tile(text(html::short_number(widest->busbw), " GB/s"), text("best bus bandwidth, ", where(*widest)));
  if (nearest_limit != nullptr)
    all += tile(text(html::percent(100 * share(*nearest_limit)), " %"),
                text("of the limit at best, ", where(*nearest_limit)));
  for (const Score& score : scores_of(run)) {
    if (!is_rival(score.baseline)) continue;
    all += tile(text(score.faster, " / ", score.equal, " / ", score.slower),
                text("faster / = / slower than ", score.baseline));
  }
  if (!run.links.empty()) all += tile(counted(run.links.size(), "link"), text(slow_links(run).size(), " slow"));
  return text("<ul class=\"tiles\">\n", all, "</ul>\n");
}

std::string id_of(std::size_t group) { return text("case", group + 1); }

std::string navigation(const ReportPage& page) {
  std::string all;
  const auto link = [&](std::string_view id, std::string_view words) {
    all += text("<a href=\"#", id, "\">", escaped(words), "</a>\n");
  };
  for (std::size_t i = 0; i < page.groups.size(); ++i) link(id_of(i), page.groups[i].title);
  if (!page.run.links.empty()) link("links", "Links");
  if (!page.parts.topology.empty() || !page.parts.topology_note.empty()) link("topology", "Topology");
  link("what", "Programs and machines");
  return text("<nav>\n", all, "</nav>\n");
}

// Turns an interval of times into one of bandwidths, by inversion.
std::optional<RowValue> bandwidth_of(double busbw, const Row& row, const Summary& time) {
  if (!(row.time.median > 0) || !(time.median > 0)) return std::nullopt;
  const double volume = busbw * row.time.median;
  return RowValue{volume / time.median,
                  {volume / time.ci.high, time.ci.low > 0 ? volume / time.ci.low : volume / time.median}};
}

std::optional<RowValue> limit_of(const Row& row) {
  if (!row.limit) return std::nullopt;
  return RowValue{row.limit->us, {row.limit->us, row.limit->us}};
}

Curve curve(std::string_view name, std::string_view look, int shape, std::vector<CurvePoint> points) {
  return {std::string(name), std::string(look), shape, std::move(points)};
}

struct Charts {
  Chart time{.title = {}, .unit = ChartUnit::time, .curves = {}};
  Chart bandwidth{.title = {}, .unit = ChartUnit::bandwidth, .curves = {}};
  Chart ratio{.title = {}, .unit = ChartUnit::ratio, .curves = {}};
};

void add_times(Charts& charts, std::string_view name, std::string_view look, int shape,
               const std::vector<const Row*>& rows, const std::function<const Summary*(const Row&)>& summary) {
  const auto time = [&](const Row& row) {
    const Summary* found = summary(row);
    return found == nullptr ? std::nullopt : std::optional(RowValue{found->median, found->ci});
  };
  const auto bandwidth = [&](const Row& row) {
    const Summary* found = summary(row);
    return found == nullptr ? std::nullopt : bandwidth_of(row.busbw, row, *found);
  };
  charts.time.curves.push_back(curve(name, look, shape, points_of(rows, time)));
  charts.bandwidth.curves.push_back(curve(name, look, shape, points_of(rows, bandwidth)));
}

void add_baselines(Charts& charts, const RowGroup& group) {
  const std::vector<std::string> names = baselines_of(group.rows);
  for (std::size_t i = names.size(); i-- > 0;) {  // the last one drawn is on top, and first in the legend
    const std::string& name = names[i];
    const std::string_view look = their_looks.at(i % their_looks.size());
    const auto shape = static_cast<int>(i % 3) + 1;
    add_times(charts, name, look, shape, group.rows, [&](const Row& row) {
      const Baseline* baseline = baseline_of(row, name);
      return baseline == nullptr ? nullptr : &baseline->time;
    });
    if (!is_rival(name)) continue;  // it is so far below 1 that the others would be pressed together
    charts.ratio.curves.push_back(
        curve(name, look, shape, points_of(group.rows, [&](const Row& row) -> std::optional<RowValue> {
                const Baseline* baseline = baseline_of(row, name);
                if (baseline == nullptr) return std::nullopt;
                return RowValue{baseline->ratio.value, baseline->ratio.ci};
              })));
  }
}

Charts charts_of(const RowGroup& group) {
  Charts charts;
  const auto own = [](const Row& row) { return &row.time; };
  charts.time.curves.push_back(curve("limit", "limit", -1, points_of(group.rows, limit_of)));
  charts.bandwidth.curves.push_back(
      curve("limit", "limit", -1, points_of(group.rows, [](const Row& row) -> std::optional<RowValue> {
              if (!row.limit || !(row.limit->us > 0)) return std::nullopt;
              const double value = row.busbw * row.time.median / row.limit->us;
              return RowValue{value, {value, value}};
            })));
  add_baselines(charts, group);
  add_times(charts, "ours", "ours", 0, group.rows, own);
  for (Chart* chart : {&charts.time, &charts.bandwidth, &charts.ratio})
    std::erase_if(chart->curves, [](const Curve& each) { return each.points.empty(); });
  charts.time.title = text("time over size, ", group.title);
  charts.bandwidth.title = text("bus bandwidth over size, ", group.title);
  charts.ratio.title = text("their time divided by ours over size, ", group.title);
  return charts;
}

std::string legend_of(const Charts& charts) {
  std::string all;
  for (std::size_t i = charts.time.curves.size(); i-- > 0;) {
    const Curve& each = charts.time.curves[i];
    all += text("<li>", sample_of(each), escaped(each.name), "</li>\n");
  }
  if (!charts.ratio.curves.empty())
    all += "<li><span class=\"key\"></span>= (the interval of the ratio holds 1)</li>\n";
  return text("<ul class=\"legend\">\n", all, "</ul>\n");
}

std::string chart_figure(const Chart& chart, std::string_view title, std::string_view words) {
  const std::string svg = svg_of(chart);
  if (svg.empty()) return {};
  return text("<figure><figcaption><b>", title, "</b>", words, "</figcaption>\n", svg, "</figure>\n");
}

std::string group_section(const ReportPage& page, std::size_t index) {
  const RowGroup& group = page.groups[index];
  const Charts charts = charts_of(group);
  std::string all =
      text("<div class=\"group\" id=\"", id_of(index), "\"><h3>", escaped(group.title), "</h3>\n", legend_of(charts),
           "<div class=\"charts\">\n", chart_figure(charts.time, "Time", " of one operation; bands are 95 % intervals"),
           chart_figure(charts.bandwidth, "Bus bandwidth", ", GB/s"),
           chart_figure(charts.ratio, "Ratio", ", theirs / ours: above 1 ours is the faster"), "</div>\n");
  const bool open = page.run.rows.size() <= most_open_rows;
  return text(all, "<details", open ? " open=\"open\"" : "", "><summary>", counted(group.rows.size(), "row"),
              "</summary>\n", rows_table(group.rows, group.title), "</details>\n</div>\n");
}

std::string groups_section(const ReportPage& page) {
  if (page.groups.empty()) return {};
  std::string all = "<section id=\"rows\"><h2>Collectives</h2>\n";
  if (page.run.launches > 1) {
    all += text("<p class=\"pale\">Points are geometric means of ", page.run.launches,
                " launches; bands and intervals span those of all of them.</p>\n");
  }
  for (std::size_t i = 0; i < page.groups.size(); ++i) all += group_section(page, i);
  return all + "</section>\n";
}

std::string topology_section(const ReportPage& page) {
  const ReportParts& parts = page.parts;
  if (parts.topology.empty() && parts.topology_note.empty()) return {};
  const std::string note = parts.topology_note.empty() ? "" : text("<p>", sentence(parts.topology_note), "</p>\n");
  const std::string picture =
      parts.topology.empty()
          ? ""
          : text("<div class=\"scroll topology\" tabindex=\"0\" role=\"region\" aria-label=\"topology\">\n",
                 parts.topology, "</div>\n");
  return text("<section id=\"topology\"><h2>Topology</h2>\n", note, picture, "</section>\n");
}

std::string page_title(const ReportPage& page) {
  std::vector<std::string> collectives;
  for (const RowGroup& group : page.groups) {
    if (std::ranges::find(collectives, group.key.collective) == collectives.end())
      collectives.push_back(group.key.collective);
  }
  if (!page.run.links.empty()) collectives.emplace_back("links");
  if (collectives.size() > 4) collectives = {text(collectives.size(), " kinds of operation")};
  return text(join(collectives, ", "), " on ", page.run.ranks, page.run.ranks == 1 ? " rank" : " ranks");
}

std::string subtitle_of(const BenchRun& run) {
  std::vector<std::string> parts = {text("Lockstep ", run.version, run.commit.empty() ? "" : " ", run.commit)};
  if (!run.started.empty()) parts.push_back(run.started);
  for (const Fact& fact : run.machine) {
    if (fact.name == "cpu" || fact.name == "mpi") parts.push_back(fact.value);
  }
  return join(parts, " · ");
}

}  // namespace

std::string report_page(const ReportParts& parts) {
  const ReportPage page = page_of(parts);
  const std::string title = escaped(page_title(page));
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\"><head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>",
      title, "</title>\n<style>", report_style(), "</style>\n</head>\n<body><main>\n<header><h1>", title, "</h1>\n<p>",
      escaped(subtitle_of(page.run)), "</p></header>\n", verdict_section(page), tiles_of(page), navigation(page),
      groups_section(page), links_section(page.run), topology_section(page),
      "<section id=\"what\"><h2>Programs and machines</h2>\n<div class=\"facts\">", facts_table(page.run),
      "</div></section>\n<footer>Times are in microseconds (µs) unless said otherwise, 1 GB/s is 10<sup>9</sup> bytes "
      "a second, sizes "
      "are in powers of 1024 (K, M, G). A time is the median of samples, each the slowest rank's. Points and cells say "
      "their numbers when "
      "the pointer rests on them.</footer>\n</main></body></html>\n");
}

std::string headline(const ReportParts& parts) {
  const ReportFinding first = page_of(parts).findings.front();
  return text(word_of(first.tone), ": ", first.what, first.next.empty() ? "" : " ", first.next);
}

}  // namespace lockstep::bench
