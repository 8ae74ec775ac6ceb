// SPDX-License-Identifier: Apache-2.0
// A call that must be refused as wrong use, with a word that its message must have.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "topology/base/error.hpp"

namespace lockstep::test {

template <class Body>
void expect_usage(const Body& body, std::string_view word) {
  try {
    body();
    ADD_FAILURE() << "was accepted; \"" << word << "\" was expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos) << error.what();
  }
}

}  // namespace lockstep::test
