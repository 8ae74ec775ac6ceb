// SPDX-License-Identifier: Apache-2.0
// Counts the calls of this process's communicators.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::test {

inline std::uint64_t begun_calls() {
  std::uint64_t all = 0;
  const auto process = status::read_process(::getpid());
  for (const auto& each : process->communicators) all += each.started;
  return all;
}

}  // namespace lockstep::test
