// SPDX-License-Identifier: Apache-2.0
// As topology/base/precompiled.hpp, for tests.

#include <gtest/gtest.h>

#include "topology/base/precompiled.hpp"
