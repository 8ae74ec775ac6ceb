// SPDX-License-Identifier: Apache-2.0
// Includes the pipelines of data sets, and how strategies divide them and share their memory. <lockstep.hpp> does not
// include them yet.
#pragma once

#include "runtime/data/dataset.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/shared_on_node.hpp"
