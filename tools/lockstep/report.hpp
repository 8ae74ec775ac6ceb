// SPDX-License-Identifier: Apache-2.0
// The part of a report's page that needs the painter of topologies.
#pragma once

#include "bench/report.hpp"

namespace lockstep::command {

// The topology of the run, or else of the earlier one, as a picture; a sentence where it cannot be drawn.
void add_topology(bench::ReportParts& parts);

}  // namespace lockstep::command
