// SPDX-License-Identifier: Apache-2.0
// Draws heat maps of links, and tables of kinds and pairs.
#include "bench/report_links.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "bench/html_text.hpp"
#include "bench/report_table.hpp"
#include "bench/statistics.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using html::coordinate;
using html::element;
using html::escaped;

constexpr int shades = 9;
constexpr int small_side = 12;  // three such matrices fit in a row
constexpr int most_members = 1 << 20;

// Returns at most four characters, which is the width of a cell.
std::string cell_number(double value) {
  return value < 1 ? with_decimals(value, 2) : value < 10 ? with_decimals(value, 1) : with_decimals(value, 0);
}

bool drawable(const PairLink& link) { return link.a >= 0 && link.b > link.a && link.b < most_members; }

std::string_view kind_word(std::string_view kind) {
  if (kind == "same_core") return "same core";
  if (kind == "shared_cache") return "shared cache";
  if (kind == "same_numa") return "same NUMA node";
  if (kind == "same_package") return "same package";
  if (kind == "same_node") return "same node";
  return kind;
}

std::string host_of(const BenchRun& run, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  return rank >= 0 && index < run.hosts.size() ? run.hosts[index] : std::string();
}

std::string rank_text(const BenchRun& run, int rank) {
  const std::string host = host_of(run, rank);
  return host.empty() ? text("rank ", rank) : text("rank ", rank, " (", host, ')');
}

// Holds one number of each link, from the member of the row to that of the column.
struct LinkMatrix {
  std::string title;
  std::string unit;
  bool more_is_better = true;
  std::function<double(const PairLink& link, bool forth)> value;
};

struct HeatCell {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::size_t pairs = 0;
  const PairLink* slow = nullptr;
  const PairLink* worst = nullptr;
};

// Groups members into cells of equal width, and draws them.
class HeatMap {
 public:
  HeatMap(const BenchRun& run, const LinkMatrix& matrix) : run_(run), matrix_(matrix) {
    std::size_t members = run.hosts.size();
    for (const PairLink& link : run.links) {
      if (drawable(link)) members = std::max(members, static_cast<std::size_t>(link.b) + 1);
    }
    members_ = members;
    bin_ = (members + most_cells - 1) / most_cells;
    side_ = (members + bin_ - 1) / bin_;
    cells_.resize(side_ * side_);
    for (const PairLink& link : run.links) {
      if (!drawable(link)) continue;
      add(link, link.a, link.b, true);
      add(link, link.b, link.a, false);
    }
    for (const HeatCell& cell : cells_) {
      if (cell.pairs == 0) continue;
      low_ = std::min(low_, cell.value);
      high_ = std::max(high_, cell.value);
    }
    // Nearly equal links get nearly equal colours.
    const double widen = std::sqrt(std::max(1.0, 2 / (high_ / low_)));
    from_ = std::log(low_ / widen);
    to_ = std::log(high_ * widen);
  }

  bool empty() const { return !(low_ <= high_); }
  std::size_t bin() const { return bin_; }
  std::string svg() const;
  std::string legend() const;

 private:
  double cell_width() const { return side_ <= 24 ? 34 : 12; }

  void add(const PairLink& link, int from, int to, bool forth) {
    const double value = matrix_.value(link, forth);
    if (!(value > 0) || !std::isfinite(value)) return;
    HeatCell& cell = cells_[static_cast<std::size_t>(from) / bin_ * side_ + static_cast<std::size_t>(to) / bin_];
    const bool worse = cell.pairs == 0 || (matrix_.more_is_better ? value < cell.value : value > cell.value);
    if (worse) {
      cell.value = value;
      cell.worst = &link;
    }
    if (link.slow) cell.slow = &link;
    ++cell.pairs;
  }
  // Returns 0 for the best, 8 for the worst.
  int shade(double value) const {
    const double part = (std::log(value) - from_) / (to_ - from_);
    const double worse = matrix_.more_is_better ? 1 - part : part;
    return std::clamp(static_cast<int>(worse * shades), 0, shades - 1);
  }
  std::string label(std::size_t index) const {
    const std::size_t first = index * bin_;
    return bin_ == 1 ? text(first) : text(first, '-', std::min(first + bin_, members_) - 1);
  }
  std::string title(const HeatCell& cell, std::size_t row, std::size_t column) const;
  std::string cell_svg(const HeatCell& cell, std::size_t row, std::size_t column) const;
  std::string labels() const;
  std::string borders() const;

  const BenchRun& run_;
  const LinkMatrix& matrix_;
  std::size_t members_ = 0;
  std::size_t bin_ = 1;
  std::size_t side_ = 0;
  std::vector<HeatCell> cells_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = 0;
  double from_ = 0;
  double to_ = 1;
};

constexpr double edge = 40;  // space for labels, left and above

std::string HeatMap::title(const HeatCell& cell, std::size_t row, std::size_t column) const {
  const std::string value = text(html::number(cell.value), ' ', matrix_.unit);
  const std::string kind = text(", ", kind_word(cell.worst->kind));
  if (bin_ > 1)
    return text("ranks ", label(row), " to ", label(column), ": at worst ", value, " of ", cell.pairs, " links",
                cell.slow != nullptr ? text(", slow: ", pair_text(run_, *cell.slow)) : "");
  return text(rank_text(run_, static_cast<int>(row)), " to ", rank_text(run_, static_cast<int>(column)), ": ", value,
              kind, cell.slow != nullptr ? text(", slow: ", cell.slow->why) : "");
}

std::string HeatMap::cell_svg(const HeatCell& cell, std::size_t row, std::size_t column) const {
  const double wide = cell_width();
  const double x = edge + static_cast<double>(column) * wide;
  const double y = edge + static_cast<double>(row) * wide;
  const std::string box = text("x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" width=\"", coordinate(wide),
                               "\" height=\"", coordinate(wide), '"');
  if (cell.pairs == 0) return text("<rect class=\"none\" ", box, "/>");
  const int colour = shade(cell.value);
  std::string all = text("<rect class=\"q", colour, "\" ", box, ">",
                         element("title", "", escaped(title(cell, row, column))), "</rect>");
  if (side_ <= 24) {
    all += text("<text class=\"v", colour, "\" x=\"", coordinate(x + wide / 2), "\" y=\"",
                coordinate(y + wide / 2 + 3.5), "\">", cell_number(cell.value), "</text>");
  }
  return all;
}

std::string HeatMap::labels() const {
  std::string all;
  const double wide = cell_width();
  const std::size_t every = side_ <= 24 ? 1 : 8;
  for (std::size_t i = 0; i < side_; i += every) {
    const double middle = edge + (static_cast<double>(i) + 0.5) * wide;
    const std::string tip = bin_ == 1 ? element("title", "", escaped(rank_text(run_, static_cast<int>(i)))) : "";
    all += text("<text class=\"tick y\" x=\"", coordinate(edge - 5), "\" y=\"", coordinate(middle + 3.5), "\">",
                label(i), tip, "</text>");
    all += text("<text class=\"tick x\" x=\"", coordinate(middle), "\" y=\"", coordinate(edge - 6), "\">",
                bin_ == 1 ? label(i) : text(i * bin_), tip, "</text>");
  }
  return all;
}

// Draws the borders between hosts.
std::string HeatMap::borders() const {
  std::string all;
  const double end = edge + static_cast<double>(side_) * cell_width();
  for (std::size_t rank = 1; bin_ == 1 && rank < std::min(run_.hosts.size(), members_); ++rank) {
    if (run_.hosts[rank] == run_.hosts[rank - 1]) continue;
    const std::string at = coordinate(edge + static_cast<double>(rank) * cell_width());
    all += text("<path class=\"border\" d=\"M", at, ' ', coordinate(edge), 'V', coordinate(end), 'M', coordinate(edge),
                ' ', at, 'H', coordinate(end), "\"/>");
  }
  return all;
}

std::string HeatMap::svg() const {
  std::string all;
  std::string outlines;  // drawn above all cells, so that neighbours do not cover them
  const double wide = cell_width();
  for (std::size_t row = 0; row < side_; ++row) {
    for (std::size_t column = 0; column < side_; ++column) {
      const HeatCell& cell = cells_[row * side_ + column];
      all += cell_svg(cell, row, column);
      if (cell.slow == nullptr) continue;
      outlines += text("<rect class=\"slow\" x=\"", coordinate(edge + static_cast<double>(column) * wide + 1.5),
                       "\" y=\"", coordinate(edge + static_cast<double>(row) * wide + 1.5), "\" width=\"",
                       coordinate(wide - 3), "\" height=\"", coordinate(wide - 3), "\"/>");
    }
    all += '\n';
  }
  const double whole = edge + static_cast<double>(side_) * wide + 3;
  const std::string_view size = side_ <= small_side ? "small" : side_ <= 24 ? "middle" : "large";
  return text("<svg class=\"heat ", size, "\" viewBox=\"0 0 ", coordinate(whole), ' ', coordinate(whole),
              "\" role=\"img\" aria-label=\"", escaped(text(matrix_.title, " between members")), "\">\n", all, labels(),
              borders(), outlines, "</svg>\n");
}

std::string HeatMap::legend() const {
  std::string all =
      text("<p class=\"scale\"><span>", matrix_.more_is_better ? html::short_number(high_) : html::short_number(low_),
           ' ', escaped(matrix_.unit), "</span>");
  all += "<svg viewBox=\"0 0 108 10\" aria-hidden=\"true\">";
  for (int i = 0; i < shades; ++i)
    all += text("<rect class=\"q", i, "\" x=\"", 12 * i, "\" y=\"0\" width=\"12\" height=\"10\"/>");
  return text(all, "</svg><span>", matrix_.more_is_better ? html::short_number(low_) : html::short_number(high_), ' ',
              escaped(matrix_.unit), " (worst)</span></p>");
}

std::string matrix_figure(const BenchRun& run, const LinkMatrix& matrix) {
  const HeatMap heat(run, matrix);
  if (heat.empty()) return {};
  const std::string note =
      heat.bin() > 1 ? text(" Each cell is the worst of ", heat.bin(), " × ", heat.bin(), " members.") : "";
  return text("<figure><figcaption>", element("b", "", escaped(matrix.title)), ", ", escaped(matrix.unit),
              ". From the rank of the row to that of the column.", note,
              "</figcaption><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", escaped(matrix.title),
              "\">", heat.svg(), "</div>", heat.legend(), "</figure>\n");
}

std::vector<LinkMatrix> matrices_of() {
  return {{"Latency of 8 bytes", "µs", false, [](const PairLink& link, bool) { return link.latency_us; }},
          {"Bandwidth, one way", "GB/s", true,
           [](const PairLink& link, bool forth) { return forth ? link.there : link.back; }},
          {"Bandwidth both ways, all pairs at once", "GB/s", true,
           [](const PairLink& link, bool) { return link.together; }}};
}

std::string median_word(std::vector<double> values) {
  std::ranges::sort(values);
  return html::number(quantile(values, 0.5));
}

std::string kinds_table(const BenchRun& run) {
  std::vector<std::string> kinds;
  for (const PairLink& link : run.links) {
    if (std::ranges::find(kinds, link.kind) == kinds.end()) kinds.push_back(link.kind);
  }
  HtmlTable table;
  table.words("kind of link").numbers("pairs").numbers("slow").numbers("latency µs", "medians over the pairs");
  table.numbers("one way GB/s").numbers("both ways GB/s").numbers("all pairs at once GB/s");
  for (const std::string& kind : kinds) {
    std::vector<double> latency;
    std::vector<double> one_way;
    std::vector<double> both;
    std::vector<double> together;
    std::size_t slow = 0;
    for (const PairLink& link : run.links) {
      if (link.kind != kind) continue;
      latency.push_back(link.latency_us);
      one_way.insert(one_way.end(), {link.there, link.back});
      both.push_back(link.both);
      together.push_back(link.together);
      slow += link.slow ? 1 : 0;
    }
    table.row().cell(kind_word(kind)).cell(text(latency.size())).cell(text(slow)).cell(median_word(latency));
    table.cell(median_word(one_way)).cell(median_word(both)).cell(median_word(together));
  }
  return table.done("medians of each kind of link");
}

std::string pairs_table(const BenchRun& run) {
  HtmlTable table;
  table.numbers("a").numbers("b").words("host of a").words("host of b").words("kind").numbers("latency µs");
  table.numbers("there GB/s").numbers("back GB/s").numbers("both GB/s").numbers("at once GB/s").words("remarks");
  for (std::size_t i = 0; i < std::min(run.links.size(), most_pairs); ++i) {
    const PairLink& link = run.links[i];
    table.row(link.slow ? "wrong" : "")
        .cell(text(link.a))
        .cell(text(link.b))
        .cell(host_of(run, link.a))
        .cell(host_of(run, link.b));
    table.cell(kind_word(link.kind))
        .cell(html::number(link.latency_us))
        .cell(html::number(link.there))
        .cell(html::number(link.back));
    table.cell(html::number(link.both))
        .cell(html::number(link.together))
        .cell(link.slow ? text("SLOW: ", link.why) : "");
  }
  return table.done("all pairs");
}

}  // namespace

std::vector<const PairLink*> slow_links(const BenchRun& run) {
  std::vector<const PairLink*> slow;
  for (const PairLink& link : run.links) {
    if (link.slow) slow.push_back(&link);
  }
  return slow;
}

std::string pair_text(const BenchRun& run, const PairLink& link) {
  return text(rank_text(run, link.a), " and ", rank_text(run, link.b));
}

std::string links_section(const BenchRun& run) {
  if (run.links.empty()) return {};
  std::string all = "<section id=\"links\"><h2>Links</h2>\n";
  const std::vector<const PairLink*> slow = slow_links(run);
  if (slow.empty()) {
    all += text("<p>No link is slow against others of its kind.</p>\n");
  } else {
    all += text("<p>", html::counted(slow.size(), "link"), slow.size() == 1 ? " is" : " are",
                " slow, outlined below:</p>\n<ul class=\"slow\">\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(slow.size(), 50); ++i) {
      const PairLink& link = *slow[i];
      all += text("<li>", element("b", "", escaped(pair_text(run, link))),
                  escaped(text(", ", kind_word(link.kind), ": ", link.why.empty() ? "slow" : link.why)), "</li>\n");
    }
    all += slow.size() > 50 ? text("<li>and ", slow.size() - 50, " more, in the table of all pairs</li></ul>\n")
                            : "</ul>\n";
  }
  all += kinds_table(run);
  const bool wide = std::ranges::any_of(run.links, [](const PairLink& link) { return link.b >= small_side; });
  all += wide ? "<div class=\"charts wide\">\n" : "<div class=\"charts\">\n";
  for (const LinkMatrix& matrix : matrices_of()) all += matrix_figure(run, matrix);
  const std::string left_out = run.links.size() > most_pairs ? text(", the first ", most_pairs) : "";
  return text(all, "</div>\n<details><summary>", html::counted(run.links.size(), "pair"), " in numbers", left_out,
              "</summary>\n", pairs_table(run), "</details>\n</section>\n");
}

}  // namespace lockstep::bench
