// SPDX-License-Identifier: Apache-2.0
// Keeps memory that MPI or the kernel may still write to when a failure has left it without an owner.
#pragma once

#include <memory>

namespace lockstep {

// Keeps `memory` as long as the process lives. Any thread may call it.
void keep_forever(std::shared_ptr<const void> memory);

}  // namespace lockstep
