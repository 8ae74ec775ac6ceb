// SPDX-License-Identifier: Apache-2.0
// Makes one self-contained page about a run, or about a later run compared with an earlier one. It is HTML that is also
// XML, with inline SVG, without scripts and external files. Equal runs make equal bytes.
#pragma once

#include <string>
#include <string_view>

#include "bench/compare.hpp"
#include "bench/row.hpp"

namespace lockstep::bench {

// Holds the inputs of a page. The pointers must outlive the call that reads them.
struct ReportParts {
  const BenchRun* run = nullptr;      // the later run, if there are two; never null
  const BenchRun* earlier = nullptr;  // null: there is only one run
  CompareOptions options = {};
  std::string topology;       // a complete <svg> element; empty: no picture
  std::string topology_note;  // a sentence, instead of the picture or below it
};

// Returns the page.
std::string report_page(const ReportParts& parts);

// Returns the worst finding as one line of plain text.
std::string headline(const ReportParts& parts);

}  // namespace lockstep::bench
