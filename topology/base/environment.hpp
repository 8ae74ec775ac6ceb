// SPDX-License-Identifier: Apache-2.0
// The variables of a process, handed down, so that tests have others.
#pragma once

#include <cstdlib>
#include <functional>

namespace lockstep {

using Environment = std::function<const char*(const char* name)>;  // like getenv

inline const char* process_environment(const char* name) { return std::getenv(name); }

}  // namespace lockstep
