// SPDX-License-Identifier: Apache-2.0
// Does work on foreign input in a throw-away process. If it crashes, loops or eats memory, only the child does, and the
// caller gets an error that says so.
#pragma once

#include <functional>
#include <string_view>

#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

// Returns the bytes that `work` returns. It runs in a child of fork() that may use 10 s and 2 GiB more than now. An
// Error thrown inside keeps its code and text. Any other end is thrown as an Error of the given code.
Bytes run_in_child(std::string_view what, Code code, const std::function<Bytes()>& work);

}  // namespace lockstep
