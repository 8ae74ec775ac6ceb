// SPDX-License-Identifier: Apache-2.0
// Ends a test that hangs: names it, prints the stack of every thread, and leaves with exit code 124.
// Crashes print the same. Part of every test program.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/roll.hpp"

namespace lockstep::test {

// Who we are in its messages ("rank 1 of 3"); starts the watching thread and takes crash signals.
void start_watchdog(const std::string& who, std::chrono::seconds deadline);

// A better name, once it is known.
void rename_watchdog(const std::string& who);

// The clock runs from the call on, up to the deadline or what is given; the name is what gets printed.
void watch_test(const std::string& name, std::optional<std::chrono::seconds> limit = std::nullopt);
void unwatch_test();

// There are other ranks, and the launcher ends all as soon as one leaves: whoever leaves gives them some time.
void expect_others();
// Those on the roll get all the time they need to say what they have to, and then nobody else is expected if `all`.
void expect_roll(const Roll& roll, bool all);

// Says why and leaves as after a hang: when the others have had their say. Where a hang has been found already, this
// waits for its end.
[[noreturn]] void leave(std::string_view why);

// "--deadline=SECONDS" taken out of the arguments.
std::chrono::seconds take_deadline(int& argc, char** argv, std::chrono::seconds built_in);

}  // namespace lockstep::test
