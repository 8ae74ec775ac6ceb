// SPDX-License-Identifier: Apache-2.0
// What processes do as metrics, in the text that Prometheus reads.
#pragma once

#include <span>
#include <string>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

std::string prometheus_text(std::span<const status::ProcessSnapshot> processes);

}  // namespace lockstep::command
