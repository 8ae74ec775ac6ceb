// SPDX-License-Identifier: Apache-2.0
// Includes the pipelines of data sets, and how strategies divide them and share their memory. <lockstep.hpp> does not
// include them yet.
#pragma once

#include "runtime/data/dataset.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/data/files/csv.hpp"
#include "runtime/data/files/example.hpp"
#include "runtime/data/files/idx.hpp"
#include "runtime/data/files/lines.hpp"
#include "runtime/data/files/npy.hpp"
#include "runtime/data/files/tf_record.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/shared_on_node.hpp"
