// SPDX-License-Identifier: Apache-2.0
// Skipping aloud: if (...) GTEST_SKIP() << lacks("a second NUMA node"); the reason is printed and counted.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "topology/base/text.hpp"

namespace lockstep::test {

inline std::string lacks(const std::string& what) {
  testing::Test::RecordProperty("lacks", what);
  return what;
}

}  // namespace lockstep::test
