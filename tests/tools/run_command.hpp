// SPDX-License-Identifier: Apache-2.0
// What a subcommand prints, and how it refuses misuse.
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/holds.hpp"
#include "tools/lockstep/command.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {

using Words = std::vector<std::string>;
using Run = Exit (*)(const command::ParsedOptions&);

inline std::string printed(Run run, const command::Manual& manual, const Words& words) {
  struct Redirected {
    std::ostringstream out;
    std::streambuf* before = std::cout.rdbuf(out.rdbuf());
    ~Redirected() { std::cout.rdbuf(before); }
  } redirected;
  EXPECT_EQ(run(command::parse(manual, words)), Exit::success);
  return redirected.out.str();
}

struct Misuse {
  Words words;
  std::string says;
};

inline void expect_refused(Run run, const command::Manual& manual, const std::vector<Misuse>& all) {
  for (const auto& [words, says] : all) {
    try {
      (void)run(command::parse(manual, words));
      ADD_FAILURE() << join(words, " ");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::usage) << error.what();
      EXPECT_PRED2(holds, error.what(), says);
      EXPECT_PRED2(holds, error.what(), " -> ");
    }
  }
}

}  // namespace lockstep::test
