// SPDX-License-Identifier: Apache-2.0
// Makes one self-contained page about a run. It is HTML that is also
// XML, with inline SVG, without scripts and external files. Equal runs make equal bytes.
#pragma once

#include <string>
#include <string_view>

#include "bench/row.hpp"

namespace lockstep::bench {

// Holds the inputs of a page. The run must outlive the call that reads them.
struct ReportParts {
  const BenchRun* run = nullptr;  // never null
  std::string topology;           // a complete <svg> element; empty: no picture
  std::string topology_note;      // a sentence, instead of the picture or below it
};

// Returns the page.
std::string report_page(const ReportParts& parts);

// Returns the worst finding as one line of plain text.
std::string headline(const ReportParts& parts);

}  // namespace lockstep::bench
