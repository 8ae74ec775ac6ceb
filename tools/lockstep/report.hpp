// SPDX-License-Identifier: Apache-2.0
// Adds the part of a report's page that needs the code that draws topologies.
#pragma once

#include "bench/report.hpp"

namespace lockstep::command {

// Adds a picture of the topology of the run, or else of the earlier one. If it cannot be drawn, a sentence replaces it.
void add_topology(bench::ReportParts& parts);

}  // namespace lockstep::command
