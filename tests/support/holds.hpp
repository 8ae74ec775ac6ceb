// SPDX-License-Identifier: Apache-2.0
// Whether a text has another in it, for EXPECT_PRED2, which shows both where it has not.
#pragma once

#include <string_view>

namespace lockstep::test {

inline bool holds(std::string_view all, std::string_view part) { return all.find(part) != std::string_view::npos; }

}  // namespace lockstep::test
