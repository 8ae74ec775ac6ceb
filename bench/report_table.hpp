// SPDX-License-Identifier: Apache-2.0
// Makes the tables of a report's page. Each has a box of its own that scrolls sideways, so that the page never does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/report_groups.hpp"
#include "bench/row.hpp"

namespace lockstep::bench {

// Builds a table. It escapes heads and cells, except cells that markup() adds.
class HtmlTable {
 public:
  // Adds a column: one of numbers is aligned right, one of words left. `tip` explains it when the pointer rests on the
  // head.
  HtmlTable& numbers(std::string_view head, std::string_view tip = {});
  HtmlTable& words(std::string_view head, std::string_view tip = {});
  // Begins a row; `look` is its CSS class.
  HtmlTable& row(std::string_view look = {});
  HtmlTable& cell(std::string_view any);
  HtmlTable& markup(std::string_view html);
  // Returns the table in its box. Screen readers read `name` aloud.
  std::string done(std::string_view name) const;

 private:
  void head(std::string_view look, std::string_view name, std::string_view tip);

  std::string heads_;
  std::string body_;
  std::vector<std::string> looks_;
  std::size_t column_ = 0;
};

// Returns a table of all measurements of these rows: every number of the bench's own table, and the tail of the times.
std::string rows_table(const std::vector<const Row*>& rows, std::string_view name);

// Returns a table of the configuration of the run.
std::string facts_table(const BenchRun& run);

}  // namespace lockstep::bench
