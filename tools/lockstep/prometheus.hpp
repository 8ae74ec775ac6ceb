// SPDX-License-Identifier: Apache-2.0
// Writes the state of processes as metrics, in the text format of Prometheus.
#pragma once

#include <span>
#include <string>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

// Returns the metrics of all communicators of these processes.
std::string prometheus_text(std::span<const status::ProcessSnapshot> processes);

}  // namespace lockstep::command
