// SPDX-License-Identifier: Apache-2.0
// Memory that somebody else may still write to when a failure has left it without an owner.
#pragma once

#include <memory>

namespace lockstep {

// As long as the process lives.
void keep_for_ever(std::shared_ptr<const void> memory);

}  // namespace lockstep
