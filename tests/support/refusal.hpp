// SPDX-License-Identifier: Apache-2.0
// The text of the error that a call must end with; a failure of the test when it ends otherwise.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "topology/base/error.hpp"

namespace lockstep::test {

inline std::string refusal(const std::function<void()>& call, Code code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace lockstep::test
