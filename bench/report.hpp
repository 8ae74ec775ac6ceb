// SPDX-License-Identifier: Apache-2.0
// One self-contained page about a run, or about a later run held against an earlier one: HTML that is XML as well, with
// inline SVG, without scripts and without anything loaded from elsewhere. Equal runs make equal bytes.
#pragma once

#include <string>
#include <string_view>

#include "bench/compare.hpp"
#include "bench/row.hpp"

namespace lockstep::bench {

struct ReportParts {
  const BenchRun* run = nullptr;      // the later, where there are two
  const BenchRun* earlier = nullptr;  // nothing: a run alone
  CompareOptions options = {};
  std::string topology;       // an <svg> element, ready; empty: no picture
  std::string topology_note;  // a sentence, instead of the picture or below it
};

std::string report_page(const ReportParts& parts);

// The worst finding, as one line of plain text.
std::string headline(const ReportParts& parts);

}  // namespace lockstep::bench
