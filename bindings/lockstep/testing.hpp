// SPDX-License-Identifier: Apache-2.0
// Includes the harness for tests of programs with several tasks on one machine.
#pragma once

#include "runtime/cluster/task_runner.hpp"
