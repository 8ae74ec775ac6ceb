// SPDX-License-Identifier: Apache-2.0
// The text of the error that a call must end with, of one of these codes; a failure of the test when it ends otherwise.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

#include "topology/base/error.hpp"

namespace lockstep::test {

inline std::string refusal(const std::function<void()>& call, std::initializer_list<Code> codes) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(std::ranges::find(codes, error.code()), codes.end()) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

inline std::string refusal(const std::function<void()>& call, Code code) { return refusal(call, {code}); }

}  // namespace lockstep::test
