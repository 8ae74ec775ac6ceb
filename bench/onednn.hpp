// SPDX-License-Identifier: Apache-2.0
// Multiplies matrices with oneDNN on one thread, for comparison. A build without oneDNN has none.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/train/compute/matrix_product.hpp"

namespace lockstep::bench {

// Returns oneDNN's name and version; empty if the build has none.
std::string onednn_version();

// Makes oneDNN use one thread.
void use_one_onednn_thread();

// Writes left * right. Throws Error if oneDNN refuses, or if the build has none.
void onednn_product(const train::compute::ProductShape& shape, const train::compute::ProductOperand<float>& left,
                    const train::compute::ProductOperand<float>& right,
                    const train::compute::ProductTarget<float>& target);

}  // namespace lockstep::bench
