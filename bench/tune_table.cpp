// SPDX-License-Identifier: Apache-2.0
// Draws conclusions from the measured sizes: the choices, and the text of the table.
#include <algorithm>
#include <cmath>

#include "bench/number_text.hpp"
#include "bench/tune.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

std::string two_digits(double value) {
  constexpr double large = 100;
  return with_decimals(value, value < large ? 2 : 0);
}

std::string bounds_text(const Interval& of) { return text('[', two_digits(of.low), ", ", two_digits(of.high), ']'); }

bool is_done_alike(const TunedSize& a, const TunedSize& b) {
  return a.collective == b.collective && a.best().algorithm == b.best().algorithm &&
         a.best().segment_bytes == b.best().segment_bytes;
}

// Returns the geometric mean of two sizes.
std::uint64_t between(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(std::sqrt(static_cast<double>(a)) * std::sqrt(static_cast<double>(b)));
}

// Returns the comment on one of the sizes of a row.
std::string measured(const TunedSize& size) {
  const AlgorithmTiming& best = size.best();
  std::string all = text("#   ", format_bytes(size.bytes), ": ", best.algorithm, ' ', two_digits(best.time.median),
                         " us ", bounds_text(best.time.ci));
  if (best.predicted_us > 0) all += text(", predicted ", two_digits(best.predicted_us));
  if (best.of_the_model)
    all += ", which the model takes, too";
  else
    all += text("; the model takes ", size.of_the_model().algorithm, ", ", two_digits(best.against_model.value), ' ',
                bounds_text(best.against_model.ci), " times as long");
  for (const AlgorithmTiming& each : size.timings) {
    if (&each != &best) all += text("; ", each.algorithm, ' ', two_digits(each.time.median));
  }
  return all + '\n';
}

std::string table_row(const TuneResult& tuning, std::span<const TunedSize> alike, std::uint64_t least,
                      std::uint64_t most) {
  const AlgorithmTiming& best = alike.front().best();
  const std::string bytes = most == 0 ? text(least, '+') : text(least, '-', most);
  std::string all = text(to_string(alike.front().collective), ' ', tuning.members, ' ', tuning.nodes, ' ', bytes, ' ',
                         best.algorithm, ' ', best.segment_bytes, " lockstep tune ", tuning.when, ", ");
  all += alike.size() == 1
             ? text(two_digits(best.time.median), " us for ", format_bytes(alike.front().bytes))
             : text(two_digits(best.time.median), " us for ", format_bytes(alike.front().bytes), " to ",
                    two_digits(alike.back().best().time.median), " us for ", format_bytes(alike.back().bytes));
  const auto ratio = std::ranges::max_element(
      alike, {}, [](const TunedSize& each) { return each.best().of_the_model ? 0 : each.best().against_model.value; });
  all += ratio->best().of_the_model ? std::string(", as the model would")
                                    : text(", up to ", two_digits(ratio->best().against_model.value),
                                           " times as fast as the model's ", ratio->of_the_model().algorithm);
  return all + '\n';
}

}  // namespace

const AlgorithmTiming& TunedSize::of_the_model() const {
  const auto found = std::ranges::find(timings, true, &AlgorithmTiming::of_the_model);
  return found == timings.end() ? timings.front() : *found;
}

const AlgorithmTiming& TunedSize::best() const {
  const AlgorithmTiming* best = &of_the_model();
  for (const AlgorithmTiming& each : timings) {
    const bool is_faster = !each.of_the_model && each.against_model.ci.low > 1;
    if (is_faster && each.time.median < best->time.median) best = &each;
  }
  return *best;
}

double cost_of_model(const TuneResult& tuning) {
  double logs = 0;
  std::size_t count = 0;
  for (const TunedSize& each : tuning.sizes) {
    if (each.timings.empty()) continue;
    logs += each.best().of_the_model ? 0 : std::log(each.best().against_model.value);
    ++count;
  }
  return count == 0 ? 1 : std::exp(logs / static_cast<double>(count));
}

std::string cost_text(const TuneResult& tuning) {
  constexpr double noticed = 1.005;
  const double cost = cost_of_model(tuning);
  return cost < noticed ? "as long, within 0.5 %" : text(two_digits(cost), " times as long");
}

std::string table_of(const TuneResult& tuning) {
  std::string all = text("# lockstep tune, ", tuning.when, ": ", tuning.members, " members on ", tuning.nodes,
                         tuning.nodes == 1 ? " node" : " nodes", "; ", tuning.sizes.size(), " of ", tuning.wanted,
                         " sizes measured\n# f32, sum, the fast order. Without this table the model's choices take ",
                         cost_text(tuning), " (geometric mean).\n",
                         "# Use it with LOCKSTEP_TABLE=this file. Times are medians, intervals of 95 %.\nfor ",
                         hexadecimal(tuning.kind), "\n");
  for (std::size_t i = 0; i < tuning.sizes.size();) {
    std::size_t end = i + 1;
    const auto& sizes = tuning.sizes;
    const Collective collective = sizes[i].collective;
    while (end < sizes.size() && is_done_alike(sizes[i], sizes[end])) ++end;
    const bool is_first = i == 0 || sizes[i - 1].collective != collective;
    const bool is_last = end == sizes.size() || sizes[end].collective != collective;
    if (is_first) all += text("\n# collective members nodes bytes algorithm segment provenance\n");
    const std::span alike = std::span(sizes).subspan(i, end - i);
    all += table_row(tuning, alike, is_first ? 0 : between(sizes[i - 1].bytes, sizes[i].bytes) + 1,
                     is_last ? 0 : between(sizes[end - 1].bytes, sizes[end].bytes));
    for (const TunedSize& each : alike) all += measured(each);
    i = end;
  }
  return all;
}

}  // namespace lockstep::bench
