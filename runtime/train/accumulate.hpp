// SPDX-License-Identifier: Apache-2.0
// Fills and adds tensors of f32 and f64, for the tape.
#pragma once

#include "runtime/any_tensor.hpp"

namespace lockstep::train {

// Returns a tensor with all elements equal to `value`.
AnyTensor filled(DataType type, TensorShape shape, double value);
// Adds the elements of another tensor of the same type and shape.
void add_in_place(const AnyTensor& to, const AnyTensor& from);

}  // namespace lockstep::train
