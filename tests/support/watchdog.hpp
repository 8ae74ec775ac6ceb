// SPDX-License-Identifier: Apache-2.0
// Ends a test that hangs: names it, prints the stack of every thread, and leaves with exit code 124.
// Crashes print the same. Part of every test program.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::test {

// Who we are in its messages ("rank 1 of 3"); starts the watching thread and takes crash signals.
void start_watchdog(const std::string& who, std::chrono::seconds deadline);

// A better name, once it is known.
void rename_watchdog(const std::string& who);

// The clock runs from the first call on; the name is what gets printed.
void watch_test(const std::string& name);
void unwatch_test();

// "--deadline=SECONDS" taken out of the arguments.
std::chrono::seconds take_deadline(int& argc, char** argv, std::chrono::seconds built_in);

}  // namespace lockstep::test
