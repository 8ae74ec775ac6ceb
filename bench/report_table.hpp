// SPDX-License-Identifier: Apache-2.0
// Tables of a report's page: each in a box of its own that scrolls sideways, so that the page never does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/report_groups.hpp"
#include "bench/row.hpp"

namespace lockstep::bench {

// Heads are words; cells are too, unless they are markup.
class HtmlTable {
 public:
  // A column of numbers ends at the right, one of words begins at the left.
  HtmlTable& numbers(std::string_view head, std::string_view tip = {});
  HtmlTable& words(std::string_view head, std::string_view tip = {});
  // Begins a row; `look` is its class.
  HtmlTable& row(std::string_view look = {});
  HtmlTable& cell(std::string_view any);
  HtmlTable& markup(std::string_view html);
  // In its box. `name` is said of the box to those who cannot see it.
  std::string done(std::string_view name) const;

 private:
  void head(std::string_view look, std::string_view name, std::string_view tip);

  std::string heads_;
  std::string body_;
  std::vector<std::string> looks_;
  std::size_t column_ = 0;
};

// All that was measured of these rows; every number of the table that the bench prints, and the tail of the times.
std::string rows_table(const std::vector<const Row*>& rows, std::string_view name);

// What was run on what; with two runs a column for each, and a word where they differ.
std::string facts_table(const BenchRun& run, const BenchRun* earlier);

std::string comparison_table(const std::vector<const ComparedRow*>& rows, bool reasons, std::string_view name);

}  // namespace lockstep::bench
